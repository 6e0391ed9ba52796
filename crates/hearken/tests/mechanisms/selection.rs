//! `auto`, and the parsing of mechanisms and their options.

use hearken::mechanism::{
    self, AUTO, Open, SelectError, TABLE, Values, Visitor, WaitCost, Watches, auto, find, visit,
};

use crate::suite::{Tests, tests};

/// Returns the tests of this module.
pub(crate) fn tests() -> Tests {
    tests! {
        auto_scales_with_ready_descriptors_and_needs_no_privileges
        auto_ranks_every_mechanism_with_a_reason
        a_spec_displays_only_changed_options
        invalid_options_are_refused
        unknown_names_are_refused_with_the_known_names
    }
}

/// A visitor that returns the name of the mechanism.
struct Name;

impl Visitor for Name {
    type Output = &'static str;

    fn visit<M: Open>(self, _mechanism: M) -> &'static str {
        M::NAME
    }
}

fn auto_scales_with_ready_descriptors_and_needs_no_privileges() {
    let spec = find(AUTO).unwrap();
    let semantics = spec.entry.semantics;
    assert_eq!(semantics.wait, WaitCost::Ready);
    assert_eq!(semantics.watches, Watches::Any);
    assert!(!semantics.registers_both && !semantics.privileged);
    assert_eq!(visit(AUTO, Name).unwrap(), spec.entry.name);
    spec.open().unwrap();
}

fn auto_ranks_every_mechanism_with_a_reason() {
    let ranking = auto::ranking();
    let mut ranked: Vec<_> = ranking.rows.iter().map(|(spec, _)| spec.entry.name).collect();
    let mut all: Vec<_> = TABLE.iter().map(|entry| entry.name).collect();
    ranked.sort_unstable();
    all.sort_unstable();
    assert_eq!(ranked, all);
    let measured: Vec<_> = ranking
        .rows
        .iter()
        .filter_map(|(_, verdict)| match verdict {
            auto::Verdict::Measured(took) => Some(*took),
            _ => None,
        })
        .collect();
    assert!(measured.len() >= 2, "{ranking:?}");
    let best = *measured.iter().min().unwrap();
    assert!(measured[0] <= best + best / 10, "the first one is not among the best: {measured:?}");
}

fn a_spec_displays_only_changed_options() {
    for entry in TABLE {
        assert_eq!(entry.spec().to_string(), entry.name);
        for spec in entry.variants() {
            let text = spec.to_string();
            assert_eq!(find(&text).unwrap().to_string(), text);
        }
    }
}

fn invalid_options_are_refused() {
    for entry in TABLE {
        let unknown = find(&format!("{}:colour=blue", entry.name)).unwrap_err();
        assert!(matches!(unknown, SelectError::Option { name, .. } if name == entry.name));
        assert!(unknown.to_string().contains("colour"), "{unknown}");
        assert!(find(&format!("{}:", entry.name)).is_err());
        for choice in entry.options {
            let parse = |value: &str| find(&format!("{}:{}={value}", entry.name, choice.name));
            let refused = parse("nonsense").unwrap_err().to_string();
            assert!(refused.contains(choice.name) && refused.contains(entry.name), "{refused}");
            match choice.values {
                Values::OneOf(words) => {
                    assert!(words.len() > 1 && refused.contains(words[1]), "{refused}");
                    for word in words {
                        assert_eq!(parse(word).unwrap().options.get(choice.name), *word);
                    }
                }
                Values::Number { default, min, max } => {
                    assert!((min..=max).contains(&default));
                    for number in [min, max, default] {
                        let parsed = parse(&number.to_string()).unwrap();
                        assert_eq!(parsed.options.number(choice.name), number);
                    }
                    assert!(parse(&(u128::from(max) + 1).to_string()).is_err());
                    assert!(parse("-1").is_err());
                }
            }
        }
    }
}

fn unknown_names_are_refused_with_the_known_names() {
    for name in ["kqueue", "", "auto:x=y", "EPOLL-EDGE", " poll"] {
        let error = find(name).unwrap_err();
        assert!(matches!(error, SelectError::Unknown { .. }), "{name}: {error}");
        assert!(error.to_string().contains("epoll-edge"), "{error}");
    }
    assert!(visit("kqueue", Name).is_err());
    assert_eq!(visit("poll", Name).unwrap(), mechanism::poll::Poll::NAME);
}

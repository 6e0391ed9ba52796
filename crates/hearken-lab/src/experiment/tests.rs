use super::*;

const SMALL: &str = r#"name = "small"
title = "Small"
reference = "a"

[[servers]]
recipe = "serve"
name = "a"
arguments = ["--events", "{mechanism-name}"]

[[axes]]
name = "mechanism-name"
values = ["poll"]

[[axes]]
name = "workload"
values = [{ name = "1b", batch = 50 }, { name = "1m", batch = 10 }]

[[passes]]
name = "timed"
[passes.load]
path = "/1b"
requests = 100
options = { lockstep = "{workload.batch}" }

[[metrics]]
name = "cpu"
of = "timed.cpu_ns"
per = "replies"
title = "CPU"

[variants.short]
axes = { workload = ["1b"] }
"#;

fn parse(text: &str) -> Result<Experiment, String> {
    Experiment::parse(text, "small.toml").map_err(|error| error.to_string())
}

#[test]
fn builtin_experiments_are_consistent() {
    let experiments = builtin().unwrap();
    for experiment in &experiments {
        let name = &experiment.name;
        assert!(experiment.text.starts_with('#'), "{name}: a comment describes the experiment");
        assert!(!experiment.description.is_empty() && !experiment.method.is_empty(), "{name}");
        for variant in experiment.variants.keys() {
            experiment.clone().select_variant(variant).unwrap();
        }
    }
    let mut names: Vec<&str> = experiments.iter().map(|e| e.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), experiments.len());
}

#[test]
fn errors_have_a_position_and_a_suggestion() {
    for (valid, invalid, expected) in [
        ("title =", "titel =", "line 2, column 1: unknown key 'titel' (did you mean 'title'?)"),
        ("\"Small\"", "5", "line 2, column 9"),
        ("recipe = \"serve\"", "receipt = \"serve\"", "(did you mean 'recipe'?)"),
        (
            "{mechanism-name}",
            "{mechanism-nam}",
            "line 8, column 28: unknown variable 'mechanism-nam' \
            (did you mean 'mechanism-name'?)",
        ),
        ("{workload.batch}", "{workload.bach}", "unknown variable 'workload.bach'"),
        ("batch = 10", "bunch = 10", "value '1b' defines 'batch', but '1m' does not"),
        ("timed.cpu_ns", "time.cpu_ns", "unknown pass 'time' (did you mean 'timed'?)"),
        ("timed.cpu_ns", "timed.cpu", "unknown figure 'cpu'"),
        ("per = \"replies\"", "per = \"reply\"", "unknown figure 'reply' (did you mean"),
        ("requests = 100", "", "a load needs 'requests' exactly if it has the option 'lockstep'"),
        (
            "axes = { workload",
            "axes = { worklod",
            "unknown axis 'worklod' (did you mean 'workload'?)",
        ),
        ("name = \"small\"", "name = \"Small one\"", "lower-case"),
        ("[\"poll\"]", "[[\"poll\"]]", "line 12, column 10"),
        ("[\"poll\"]", "[]", "axis 'mechanism-name' needs at least one value"),
    ] {
        assert!(SMALL.contains(valid), "{valid}");
        let error = parse(&SMALL.replacen(valid, invalid, 1)).unwrap_err();
        assert!(
            error.contains(expected) && error.contains("'small.toml': line"),
            "{invalid}: {error}"
        );
    }
}

#[test]
fn values_of_axes_can_be_replaced() {
    let mut experiment = parse(SMALL).unwrap();
    experiment.set("mechanism-name", &["select".into(), "poll".into()]).unwrap();
    assert_eq!(experiment.axes[0].values[0].name, "select");
    experiment.set("workload", &["1m".into()]).unwrap();
    assert_eq!(experiment.axes[1].values[0].variables["batch"], "10");
    for (axis, value, expected) in [
        ("worklod", "1m", "has no axis 'worklod' (did you mean 'workload'?)"),
        ("workload", "2m", "unknown value '2m' of axis 'workload' (available: 1m)"),
    ] {
        let error = experiment.set(axis, &[value.into()]).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    assert!(experiment.select_variant("long").unwrap_err().to_string().contains("short"));
    experiment = parse(SMALL).unwrap();
    experiment.select_variant("short").unwrap();
    assert_eq!(experiment.axes[1].values.len(), 1);
}

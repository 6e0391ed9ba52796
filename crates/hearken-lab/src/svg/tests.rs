use super::*;
use proptest::prelude::*;

fn panel(name: &str, ys: &[f64]) -> Panel {
    let point = |(i, &y): (usize, &f64)| Point { x: i as f64, y, margin: y / 10.0, hollow: i == 1 };
    let points = ys.iter().enumerate().map(point).collect();
    Panel {
        title: "cost <µs> & more".into(),
        x_title: "idle".into(),
        series: vec![Series { name: name.into(), style: 9, points }],
    }
}

#[test]
fn all_text_is_escaped() {
    let svg = figure("a \"quoted\" <b>", &[panel("<script>&\"", &[1.0, 2.0])], None).into_string();
    assert!(!svg.contains("<script>") && !svg.contains("<b>"), "{svg}");
    assert!(svg.contains("&lt;script&gt;&amp;") && svg.contains("cost &lt;µs&gt; &amp; more"));
    assert!(svg.contains("aria-label=\"a &quot;quoted&quot;"));
}

#[test]
fn every_element_is_closed() {
    let css = stylesheet(&LIGHT);
    let svg = figure("x", &[panel("m", &[1.0, 500.0])], Some(&css)).into_string();
    let opened = svg.matches('<').count() - svg.matches("</").count();
    assert_eq!(opened, svg.matches("</").count(), "{svg}");
    assert!(svg.contains("(logarithmic)") && svg.starts_with("<svg xmlns="));
    assert!(!svg.contains("NaN") && !svg.contains("inf"));
}

#[test]
fn scales_have_ticks_within_them() {
    for ys in [&[0.0, 0.0][..], &[1.0, 19.0], &[3.0, 70_000.0], &[0.2], &[1e9, 1e9]] {
        let panel = panel("m", ys);
        let y = Scale::for_values(panel.series[0].points.iter(), 250.0, 0.0);
        let ticks = y.ticks();
        assert!((2..=12).contains(&ticks.len()), "{ys:?} {ticks:?}");
        assert!(ticks.iter().all(|(at, _)| (0.0..=250.0).contains(at)), "{ys:?} {ticks:?}");
        assert_eq!(y.log, ys == [3.0, 70_000.0]);
    }
}

proptest! {
    #[test]
    fn labels_never_overlap(mut wanted in prop::collection::vec(0.0f64..250.0, 0..7)) {
        wanted.sort_by(f64::total_cmp);
        let placed = spread_labels(&wanted, 18.0, 0.0, 250.0);
        prop_assert!(placed.windows(2).all(|w| w[1] - w[0] >= 18.0 - 1e-9));
        prop_assert!(placed.iter().all(|at| (0.0..=250.0 + 1e-9).contains(at)));
    }

    #[test]
    fn scale_preserves_order(a in 0.001f64..1e9, b in 0.001f64..1e9) {
        let panel = panel("m", &[a, b]);
        let y = Scale::for_values(panel.series[0].points.iter(), 0.0, 250.0);
        prop_assert_eq!(a < b, y.at(a) < y.at(b));
    }
}

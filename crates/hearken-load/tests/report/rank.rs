//! The rank of a process from the environment of its launcher.

use hearken_load::{Rank, RankError};
use proptest::prelude::*;

/// Finds the rank in an environment given as `NAME=VALUE` pairs separated by spaces.
fn find(rank: Option<u32>, size: Option<u32>, environment: &str) -> Result<Rank, RankError> {
    Rank::detect(rank, size, |name| {
        let mut pairs = environment.split(' ').filter_map(|pair| pair.split_once('='));
        pairs.find(|pair| pair.0 == name).map(|pair| pair.1.to_owned())
    })
}

const STEP: &str = "SLURM_PROCID=2 SLURM_NTASKS=4";
const ARRAY: &str = "SLURM_ARRAY_TASK_ID=7 SLURM_ARRAY_TASK_COUNT=4 SLURM_ARRAY_TASK_MIN=5 \
                     SLURM_ARRAY_TASK_MAX=8 SLURM_ARRAY_TASK_STEP=1";
const OMPI: &str = "OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=5";
const KUBERNETES: &str = "JOB_COMPLETION_INDEX=1";
const NOMAD: &str = "NOMAD_ALLOC_INDEX=0";

#[test]
fn finds_the_rank_of_each_launcher() {
    for (size, environment, expected) in [
        (None, String::new(), (0, 1)),
        (Some(1), String::new(), (0, 1)),
        (None, OMPI.to_owned(), (3, 5)),
        (Some(5), OMPI.to_owned(), (3, 5)),
        (None, STEP.to_owned(), (2, 4)),
        (None, ARRAY.to_owned(), (2, 4)),
        (Some(6), KUBERNETES.to_owned(), (1, 6)),
        (Some(6), NOMAD.to_owned(), (0, 6)),
        // Precedence of launchers.
        (None, format!("{STEP} {OMPI} {ARRAY} {KUBERNETES} {NOMAD}"), (3, 5)),
        (None, format!("{NOMAD} {KUBERNETES} {ARRAY} {STEP}"), (2, 4)),
        (None, format!("{NOMAD} {KUBERNETES} {ARRAY}"), (2, 4)),
        (Some(6), format!("{NOMAD} {KUBERNETES}"), (1, 6)),
        // A batch script has a rank, and a size if the number of tasks was specified.
        (None, "SLURM_PROCID=0".to_owned(), (0, 1)),
        (None, format!("SLURM_PROCID=0 {ARRAY}"), (2, 4)),
        (None, format!("SLURM_PROCID=0 SLURM_NTASKS=1 {ARRAY}"), (2, 4)),
        // A shell within an allocation.
        (None, "SLURM_NTASKS=4".to_owned(), (0, 1)),
        (
            None,
            "SLURM_ARRAY_TASK_ID=9 SLURM_ARRAY_TASK_COUNT=4 SLURM_ARRAY_TASK_MIN=0 \
             SLURM_ARRAY_TASK_MAX=9 SLURM_ARRAY_TASK_STEP=3"
                .to_owned(),
            (3, 4),
        ),
        (Some(4), "SLURM_ARRAY_TASK_ID=3".to_owned(), (3, 4)),
    ] {
        let found = find(None, size, &environment).unwrap();
        assert_eq!((found.rank(), found.size()), expected, "{size:?} {environment}");
    }
}

#[test]
fn given_values_take_precedence() {
    let found = find(Some(1), Some(2), &format!("{OMPI} SLURM_PROCID=x")).unwrap();
    assert_eq!(found, Rank::new(1, 2).unwrap());
    assert_eq!(find(None, None, "").unwrap(), Rank::SINGLE);
}

#[test]
fn rejects_contradictory_values() {
    for (rank, size, environment, expected) in [
        (Some(2), Some(2), "", &["rank 2 of 2"][..]),
        (None, Some(0), "", &["rank 0 of 0"]),
        (Some(2), None, STEP, &["--size"]),
        (None, Some(3), "", &["size 3", "--rank"]),
        (None, None, "OMPI_COMM_WORLD_RANK=1", &["OMPI_COMM_WORLD_RANK is 1", "--size"]),
        (
            None,
            None,
            "OMPI_COMM_WORLD_RANK=5 OMPI_COMM_WORLD_SIZE=5",
            &["OMPI_COMM_WORLD_RANK is 5", "OMPI_COMM_WORLD_SIZE, 5"],
        ),
        (None, Some(4), OMPI, &["OMPI_COMM_WORLD_SIZE is 5", "--size 4"]),
        (None, None, "SLURM_PROCID=1", &["SLURM_PROCID is 1", "--size"]),
        (None, None, "SLURM_PROCID=0 SLURM_NTASKS=0", &["SLURM_PROCID is 0", "SLURM_NTASKS, 0"]),
        (None, Some(2), "SLURM_PROCID=2", &["SLURM_PROCID is 2", "--size, 2"]),
        (None, None, "SLURM_PROCID=x SLURM_NTASKS=4", &["SLURM_PROCID is 'x'"]),
        (None, None, "SLURM_PROCID=0 SLURM_NTASKS=+4", &["SLURM_NTASKS is '+4'"]),
        (None, None, "SLURM_PROCID=0 SLURM_NTASKS=", &["SLURM_NTASKS is ''"]),
        (None, None, "JOB_COMPLETION_INDEX=1", &["JOB_COMPLETION_INDEX is 1", "--size"]),
        (None, Some(2), "JOB_COMPLETION_INDEX=2", &["JOB_COMPLETION_INDEX is 2"]),
        (None, Some(2), "NOMAD_ALLOC_INDEX=-1", &["NOMAD_ALLOC_INDEX is '-1'"]),
        (None, None, "NOMAD_ALLOC_INDEX=0", &["NOMAD_ALLOC_INDEX is 0", "--size"]),
        (None, Some(2), "NOMAD_ALLOC_INDEX=4294967296", &["4294967296", "4294967295"]),
        (
            None,
            None,
            "SLURM_ARRAY_TASK_ID=7 SLURM_ARRAY_TASK_COUNT=3 SLURM_ARRAY_TASK_MIN=1 \
             SLURM_ARRAY_TASK_MAX=7",
            &["SLURM_ARRAY_TASK_MAX is 7", "--array"],
        ),
        (
            None,
            None,
            "SLURM_ARRAY_TASK_ID=4 SLURM_ARRAY_TASK_COUNT=3 SLURM_ARRAY_TASK_MIN=1",
            &["SLURM_ARRAY_TASK_ID is 4", "SLURM_ARRAY_TASK_COUNT 3"],
        ),
        (
            None,
            None,
            "SLURM_ARRAY_TASK_ID=0 SLURM_ARRAY_TASK_COUNT=3 SLURM_ARRAY_TASK_MIN=1",
            &["SLURM_ARRAY_TASK_ID is 0", "SLURM_ARRAY_TASK_MIN is 1"],
        ),
        (
            None,
            None,
            "SLURM_ARRAY_TASK_ID=1 SLURM_ARRAY_TASK_COUNT=3 SLURM_ARRAY_TASK_STEP=2",
            &["SLURM_ARRAY_TASK_ID is 1", "SLURM_ARRAY_TASK_STEP 2"],
        ),
        (None, None, "SLURM_ARRAY_TASK_ID=1", &["SLURM_ARRAY_TASK_ID is 1", "--size"]),
        (None, Some(3), ARRAY, &["SLURM_ARRAY_TASK_COUNT is 4", "--size 3"]),
    ] {
        let error = find(rank, size, environment).unwrap_err().to_string();
        for part in expected {
            assert!(error.contains(part), "{environment}: {error}");
        }
        assert!(!error.contains('\n'));
    }
}

#[test]
fn rejects_an_invalid_rank_in_json() {
    let read = |text| serde_json::from_str::<Rank>(text).map_err(|error| error.to_string());
    assert_eq!(read(r#"{"rank":1,"size":2}"#), Ok(Rank::new(1, 2).unwrap()));
    assert!(read(r#"{"rank":2,"size":2}"#).unwrap_err().contains("rank 2 of 2"));
    let text = serde_json::to_string(&Rank::SINGLE).unwrap();
    assert_eq!(text, r#"{"rank":0,"size":1}"#);
}

fn all(size: u32) -> impl Iterator<Item = Rank> {
    (0..size).map(move |rank| Rank::new(rank, size).unwrap())
}

proptest! {
    #[test]
    fn shares_add_up_to_the_total(total: u64, size in 1..2000u32) {
        let shares: Vec<_> = all(size).map(|rank| rank.share(total)).collect();
        prop_assert_eq!(shares.iter().sum::<u64>(), total);
        // The first ranks have at most one item more.
        prop_assert!(shares.is_sorted_by(|a, b| a >= b));
        prop_assert!(shares[0] - shares[shares.len() - 1] <= 1);
    }

    #[test]
    fn rate_shares_add_up_to_the_total(total in 0.0..1e9f64, size in 1..2000u32) {
        let sum: f64 = all(size).map(|rank| rank.share_f64(total)).sum();
        prop_assert!((sum - total).abs() <= total * 1e-9);
    }

    #[test]
    fn never_panics_and_returns_valid_ranks(
        values in prop::collection::vec("[0-9]{0,2}|[ -~]{0,3}|", 11),
        size: Option<u8>,
    ) {
        const NAMES: [&str; 11] = [
            "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "SLURM_PROCID", "SLURM_NTASKS",
            "SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_MIN", "SLURM_ARRAY_TASK_MAX",
            "SLURM_ARRAY_TASK_STEP", "SLURM_ARRAY_TASK_COUNT", "JOB_COMPLETION_INDEX",
            "NOMAD_ALLOC_INDEX",
        ];
        let found = Rank::detect(None, size.map(u32::from), |name| {
            let at = NAMES.iter().position(|other| *other == name).expect("a known name");
            (!values[at].is_empty()).then(|| values[at].clone())
        });
        if let Ok(rank) = found {
            prop_assert!(rank.rank() < rank.size());
            prop_assert!(size.is_none_or(|size| u32::from(size) == rank.size()));
        }
    }

    /// Checks that the jobs of any array have all ranks exactly once.
    #[test]
    fn jobs_of_a_slurm_array_have_distinct_ranks(min in 0..1000u32, step in 1..50u32, count in 1..50u32) {
        let max = min + step * (count - 1);
        let ranks: Vec<_> = (min..=max)
            .step_by(step as usize)
            .map(|id| {
                let environment = format!(
                    "SLURM_ARRAY_TASK_ID={id} SLURM_ARRAY_TASK_COUNT={count} \
                     SLURM_ARRAY_TASK_MIN={min} SLURM_ARRAY_TASK_MAX={max} \
                     SLURM_ARRAY_TASK_STEP={step}"
                );
                find(None, None, &environment).unwrap()
            })
            .collect();
        prop_assert_eq!(ranks, all(count).collect::<Vec<_>>());
    }
}

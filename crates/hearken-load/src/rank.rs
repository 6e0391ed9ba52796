//! A process' part in a run of many: which of how many it is, and what it is to do of the whole.

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Which of how many processes this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "RankFields")]
pub struct Rank {
    rank: u32,
    size: u32,
}

/// As it is written down.
#[derive(Deserialize)]
struct RankFields {
    rank: u32,
    size: u32,
}

impl TryFrom<RankFields> for Rank {
    type Error = RankError;

    fn try_from(given: RankFields) -> Result<Rank, RankError> {
        Rank::new(given.rank, given.size)
    }
}

/// Why a process cannot tell which part of the run is its own.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RankError {
    /// There is no such rank.
    #[error("rank {rank} of {size} is none: ranks are from 0 to one less than the size")]
    OutOfRange {
        /// The rank that was given.
        rank: u32,
        /// The size that was given.
        size: u32,
    },
    /// A rank was given, and not of how many.
    #[error("rank {0} was given, but not of how many; give both --rank and --size")]
    RankAlone(u32),
    /// A size was given, and nothing tells which this is.
    #[error("size {0} was given, but nothing tells which of them this is; give --rank too")]
    SizeAlone(u32),
    /// A variable of the environment is not a number.
    #[error(
        "the environment's {name} is \"{}\", not a number from 0 to {}; give --rank and --size",
        value.escape_debug(),
        u32::MAX
    )]
    Value {
        /// The variable.
        name: &'static str,
        /// Its value.
        value: String,
    },
    /// A variable of the environment is out of its range, or contradicts another or the size given.
    #[error("the environment's {name} is {value}, {reason}")]
    Inconsistent {
        /// The variable.
        name: &'static str,
        /// Its value.
        value: u32,
        /// What it contradicts.
        reason: String,
    },
}

impl Rank {
    /// The only one.
    pub const ALONE: Rank = Rank { rank: 0, size: 1 };

    /// The process that is `rank` of `size`, counted from 0.
    ///
    /// # Errors
    /// There is none.
    pub fn new(rank: u32, size: u32) -> Result<Rank, RankError> {
        if rank < size {
            Ok(Rank { rank, size })
        } else {
            Err(RankError::OutOfRange { rank, size })
        }
    }

    /// Finds this process' rank, from what was given and from this process' environment, in the
    /// order that [`find`](Rank::find) has.
    ///
    /// # Errors
    /// As [`find`](Rank::find).
    pub fn of_this_process(rank: Option<u32>, size: Option<u32>) -> Result<Rank, RankError> {
        Rank::find(rank, size, |name| {
            std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
        })
    }

    /// Finds a process' rank: by what was given, else by the first of these that `lookup` finds in
    /// the environment.
    ///
    /// | who started it | rank | size |
    /// |---|---|---|
    /// | OpenMPI | `OMPI_COMM_WORLD_RANK` | `OMPI_COMM_WORLD_SIZE` |
    /// | a Slurm step | `SLURM_PROCID` | `SLURM_NTASKS` |
    /// | a Slurm array | `SLURM_ARRAY_TASK_ID`, from `_MIN` in steps of `_STEP` | `_COUNT` |
    /// | a Kubernetes Indexed Job | `JOB_COMPLETION_INDEX` | must be given |
    /// | Nomad | `NOMAD_ALLOC_INDEX` | must be given |
    ///
    /// Without any it is alone. A size that was given must be that of the environment. The single
    /// task of a job in a Slurm array is a part of the array; where the array's jobs have several
    /// tasks, each job is a run of its own.
    ///
    /// # Errors
    /// A rank without a size, a value that is no number, or values that contradict each other.
    pub fn find(
        rank: Option<u32>,
        size: Option<u32>,
        lookup: impl Fn(&str) -> Option<String>,
    ) -> Result<Rank, RankError> {
        let environment = Environment { given_size: size, lookup };
        match (rank, size) {
            (Some(rank), Some(size)) => return Rank::new(rank, size),
            (Some(rank), None) => return Err(RankError::RankAlone(rank)),
            (None, _) => {}
        }
        if let Some(found) =
            environment.from_pair("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")?
        {
            return Ok(found);
        }
        if let Some(found) = environment.slurm()? {
            return Ok(found);
        }
        for name in ["JOB_COMPLETION_INDEX", "NOMAD_ALLOC_INDEX"] {
            if let Some(found) = environment.from_index(name)? {
                return Ok(found);
            }
        }
        match size {
            None | Some(1) => Ok(Rank::ALONE),
            Some(0) => Err(RankError::OutOfRange { rank: 0, size: 0 }),
            Some(size) => Err(RankError::SizeAlone(size)),
        }
    }

    /// Which it is, from 0.
    pub fn rank(self) -> u32 {
        self.rank
    }

    /// Of how many.
    pub fn size(self) -> u32 {
        self.size
    }

    /// Its part of a number of things: the first ranks have one more where it does not come out
    /// even.
    pub fn share(self, total: u64) -> u64 {
        let (rank, size) = (u64::from(self.rank), u64::from(self.size));
        total / size + u64::from(rank < total % size)
    }

    /// Its part of what can be cut anywhere, as a rate.
    pub fn share_f64(self, total: f64) -> f64 {
        total / f64::from(self.size)
    }
}

/// What was given, and what the environment says.
struct Environment<F> {
    given_size: Option<u32>,
    lookup: F,
}

impl<F: Fn(&str) -> Option<String>> Environment<F> {
    fn number(&self, name: &'static str) -> Result<Option<u32>, RankError> {
        let Some(value) = (self.lookup)(name) else { return Ok(None) };
        let digits = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
        match value.parse() {
            Ok(number) if digits => Ok(Some(number)),
            _ => Err(RankError::Value { name, value: value.chars().take(40).collect() }),
        }
    }

    /// By a rank and a size.
    fn from_pair(&self, rank: &'static str, size: &'static str) -> Result<Option<Rank>, RankError> {
        let Some(number) = self.number(rank)? else { return Ok(None) };
        let Some(of) = self.number(size)? else {
            return self.with_given_size(rank, number).map(Some);
        };
        self.check_given_size(size, of)?;
        self.in_range(rank, number, size, of).map(Some)
    }

    /// By a rank alone, which does not tell of how many.
    fn from_index(&self, name: &'static str) -> Result<Option<Rank>, RankError> {
        self.number(name)?.map(|number| self.with_given_size(name, number)).transpose()
    }

    fn slurm(&self) -> Result<Option<Rank>, RankError> {
        const TASKS: &str = "SLURM_NTASKS";
        const ID: &str = "SLURM_ARRAY_TASK_ID";
        let single = self.number(TASKS)?.is_none_or(|tasks| tasks == 1);
        if single && self.number(ID)?.is_some() {
            return self.slurm_array();
        }
        match (self.number("SLURM_PROCID")?, self.number(TASKS)?) {
            // A batch script itself, of a job that was not told how many tasks it has.
            (Some(0), None) if self.given_size.is_none() => Ok(Some(Rank::ALONE)),
            _ => self.from_pair("SLURM_PROCID", TASKS),
        }
    }

    fn slurm_array(&self) -> Result<Option<Rank>, RankError> {
        const ID: &str = "SLURM_ARRAY_TASK_ID";
        const MIN: &str = "SLURM_ARRAY_TASK_MIN";
        const MAX: &str = "SLURM_ARRAY_TASK_MAX";
        const STEP: &str = "SLURM_ARRAY_TASK_STEP";
        const COUNT: &str = "SLURM_ARRAY_TASK_COUNT";
        let Some(id) = self.number(ID)? else { return Ok(None) };
        let min = self.number(MIN)?.unwrap_or(0);
        let step = self.number(STEP)?.unwrap_or(1).max(1);
        let below = |value| inconsistent(ID, id, format!("and {MIN} is {value}"));
        let from_min = id.checked_sub(min).ok_or_else(|| below(min))?;
        let Some(count) = self.number(COUNT)? else {
            return self.with_given_size(ID, from_min / step).map(Some);
        };
        self.check_given_size(COUNT, count)?;
        let even = u64::from(min) + u64::from(step) * u64::from(count.saturating_sub(1));
        if let Some(max) = self.number(MAX)?.filter(|&max| u64::from(max) != even) {
            let reason = format!(
                "and with {MIN} {min}, {STEP} {step} and {COUNT} {count} the array has gaps; \
                 give it as --array=0-N"
            );
            return Err(inconsistent(MAX, max, reason));
        }
        if from_min % step != 0 {
            let reason = format!("which is not in steps of {STEP} {step} from {MIN} {min}");
            return Err(inconsistent(ID, id, reason));
        }
        let rank = from_min / step;
        Rank::new(rank, count).map(Some).map_err(|_| {
            let reason = format!("beyond those from {MIN} {min} in {COUNT} {count}");
            inconsistent(ID, id, reason)
        })
    }

    fn with_given_size(&self, name: &'static str, rank: u32) -> Result<Rank, RankError> {
        match self.given_size {
            Some(size) => self.in_range(name, rank, "--size", size),
            None => {
                let reason = "but nothing tells of how many; give --size".to_owned();
                Err(inconsistent(name, rank, reason))
            }
        }
    }

    fn in_range(
        &self,
        name: &'static str,
        rank: u32,
        size_name: &str,
        size: u32,
    ) -> Result<Rank, RankError> {
        Rank::new(rank, size).map_err(|_| {
            inconsistent(name, rank, format!("which is not less than {size_name}, {size}"))
        })
    }

    /// A size that was given is the environment's.
    fn check_given_size(&self, name: &'static str, size: u32) -> Result<(), RankError> {
        match self.given_size {
            Some(given) if given != size => {
                Err(inconsistent(name, size, format!("but --size {given} was given; leave it out")))
            }
            _ => Ok(()),
        }
    }
}

fn inconsistent(name: &'static str, value: u32, reason: String) -> RankError {
    RankError::Inconsistent { name, value, reason }
}

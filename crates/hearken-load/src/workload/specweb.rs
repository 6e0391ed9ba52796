//! The mix of files of the static part of SPECweb99.
//!
//! Of the requests, 35 % are for files below 1 KB and 50 % for files of 1 to 9 KB. Another 14 % are for
//! files of 10 to 90 KB, and 1 % for files of 100 to 900 KB. Each directory has nine files per class, of which those in the middle are requested
//! most. Directories follow Zipf's law.

use std::path::Path;

use super::Selection;
use super::alias_table::AliasTable;
use super::checks::Expect;
use super::fileset::{FILES, Manifest, name};
use super::lines::file_error;
use super::message::{MessageBuilder, Request};
use crate::config::LoadError;
use crate::url::Url;

const CLASS_WEIGHTS: [f64; 4] = [0.35, 0.50, 0.14, 0.01];
const FILE_WEIGHTS: [f64; 9] = [0.039, 0.059, 0.088, 0.177, 0.353, 0.118, 0.071, 0.050, 0.044];
/// Fraction of sessions with one request. The others have 5 to 15 requests, uniformly distributed.
const SINGLE_REQUEST_FRACTION: f64 = 0.3;

/// A sampler of files.
#[derive(Debug)]
pub(super) struct Mix {
    directory: AliasTable,
    file: AliasTable,
    pub(super) directories: u32,
    pub(super) bytes: u64,
}

/// Creates requests for the file set in `dir`, which the server serves at the path of `url`.
pub(super) fn read(
    dir: &Path,
    url: &Url,
    builder: &mut MessageBuilder<'_>,
) -> Result<Selection, LoadError> {
    let manifest = Manifest::read(dir)?;
    if url.target.contains('?') {
        return Err(LoadError::Config(
            "the URL of a SPECweb99-like file set must be a directory without a query",
        ));
    }
    let prefix = url.target.trim_end_matches('/');
    for directory in 0..manifest.directories {
        for (file, &size) in manifest.sizes.iter().enumerate() {
            let target = format!("{prefix}/{}", name(directory, file));
            let expect = Expect::for_file(size);
            let request = Request { expect: Some(&expect), ..Request::new(&target) };
            builder.add(&request).map_err(|reason| file_error(dir, reason.to_string()))?;
        }
    }
    Ok(Selection::Mix(Mix::new(&manifest)))
}

impl Mix {
    fn new(manifest: &Manifest) -> Mix {
        let zipf: Vec<f64> =
            (1..=manifest.directories).map(|rank| f64::from(rank).recip()).collect();
        let files: Vec<f64> =
            CLASS_WEIGHTS.iter().flat_map(|class| FILE_WEIGHTS.map(|file| class * file)).collect();
        Mix {
            directory: AliasTable::new(&zipf),
            file: AliasTable::new(&files),
            directories: manifest.directories,
            bytes: manifest.bytes(),
        }
    }

    /// Returns the index of a message. Messages are all different and in the order of the files.
    pub(super) fn sample(&self, random: &mut fastrand::Rng) -> u32 {
        self.directory.sample(random) * FILES as u32 + self.file.sample(random)
    }

    /// Returns the number of requests of a session, 7.3 on average.
    pub(super) fn session_len(&self, random: &mut fastrand::Rng) -> u32 {
        if random.f64() < SINGLE_REQUEST_FRACTION { 1 } else { random.u32(5..=15) }
    }
}

#[cfg(test)]
mod tests {
    use super::{CLASS_WEIGHTS, FILE_WEIGHTS, FILES, Manifest, Mix};

    /// Checks that the frequency of an event with probability `p` is within six standard deviations.
    fn check(seen: u32, total: u32, p: f64) {
        let expected = f64::from(total) * p;
        let bound = 6.0 * (expected * (1.0 - p)).sqrt();
        assert!(
            (f64::from(seen) - expected).abs() < bound,
            "{seen} of {total}, expected {expected}"
        );
    }

    #[test]
    fn the_mix_matches_specweb99() {
        const COUNT: u32 = 400_000;
        assert!((CLASS_WEIGHTS.iter().sum::<f64>() - 1.0).abs() < 1e-9);
        assert!((FILE_WEIGHTS.iter().sum::<f64>() - 0.999).abs() < 1e-9);
        let mix = Mix::new(&Manifest::standard(100));
        for seed in 0..3 {
            let mut random = fastrand::Rng::with_seed(seed);
            let (mut directories, mut files) = ([0; 100], [0; FILES]);
            for _ in 0..COUNT {
                let message = mix.sample(&mut random) as usize;
                directories[message / FILES] += 1;
                files[message % FILES] += 1;
            }
            let harmonic: f64 = (1..=100).map(|rank| f64::from(rank).recip()).sum();
            for (directory, &seen) in directories.iter().enumerate() {
                check(seen, COUNT, 1.0 / (directory as f64 + 1.0) / harmonic);
            }
            for (class, files) in files.chunks(9).enumerate() {
                check(files.iter().sum(), COUNT, CLASS_WEIGHTS[class]);
                for (file, &seen) in files.iter().enumerate() {
                    check(seen, COUNT, CLASS_WEIGHTS[class] * FILE_WEIGHTS[file] / 0.999);
                }
            }
        }
    }

    #[test]
    fn session_lengths_match_specweb99() {
        const COUNT: u32 = 100_000;
        let mix = Mix::new(&Manifest::standard(1));
        let mut random = fastrand::Rng::with_seed(7);
        let mut seen = [0; 16];
        for _ in 0..COUNT {
            seen[mix.session_len(&mut random) as usize] += 1;
        }
        assert_eq!(seen[0] + seen[2] + seen[3] + seen[4], 0);
        check(seen[1], COUNT, 0.3);
        seen[5..].iter().for_each(|&seen| check(seen, COUNT, 0.7 / 11.0));
        let mean: f64 = (0..).zip(seen).map(|(len, seen)| f64::from(len * seen)).sum();
        // The variance of the session length is 0.3 + 0.7 * 110 - 7.3^2.
        let bound = 6.0 * (24.01 / f64::from(COUNT)).sqrt();
        assert!((mean / f64::from(COUNT) - 7.3).abs() < bound, "{mean}");
    }
}

//! The static part of SPECweb99, or what is like it: which file is asked for how often.
//!
//! 35 % of the requests are for files of less than 1 KB, 50 % for 1 to 9 KB, 14 % for 10 to 90 KB
//! and 1 % for 100 to 900 KB. There are nine of each class in a directory, of which those in the
//! middle are asked for most; directories are drawn by Zipf's law.

use std::path::Path;

use super::Kind;
use super::alias::Alias;
use super::expect::Expect;
use super::fileset::{FILES, Manifest, name};
use super::lines::whole;
use super::message::{Maker, Request};
use crate::config::LoadError;
use crate::url::Url;

const CLASSES: [f64; 4] = [0.35, 0.50, 0.14, 0.01];
const IN_CLASS: [f64; 9] = [0.039, 0.059, 0.088, 0.177, 0.353, 0.118, 0.071, 0.050, 0.044];
/// How many sessions are one request; the others are as likely to have any number of 5 to 15.
const SINGLE: f64 = 0.3;

/// Draws files.
#[derive(Debug)]
pub(super) struct Mix {
    directory: Alias,
    file: Alias,
    pub(super) directories: u32,
    pub(super) bytes: u64,
}

/// Asks for the file set in `dir`, as it is found at the path of `url`.
pub(super) fn read(dir: &Path, url: &Url, maker: &mut Maker<'_>) -> Result<Kind, LoadError> {
    let manifest = Manifest::read(dir)?;
    if url.target.contains('?') {
        return Err(LoadError::Config(
            "the URL of a SPECweb99-like file set is that of a directory, and has no query",
        ));
    }
    let prefix = url.target.trim_end_matches('/');
    for directory in 0..manifest.directories {
        for (file, &size) in manifest.sizes.iter().enumerate() {
            let target = format!("{prefix}/{}", name(directory, file));
            let expect = Expect::file(size);
            let request = Request { expect: Some(&expect), ..Request::of(&target) };
            maker.add(&request).map_err(|reason| whole(dir, reason.to_string()))?;
        }
    }
    Ok(Kind::Mix(Mix::new(&manifest)))
}

impl Mix {
    fn new(manifest: &Manifest) -> Mix {
        let zipf: Vec<f64> =
            (1..=manifest.directories).map(|rank| f64::from(rank).recip()).collect();
        let files: Vec<f64> =
            CLASSES.iter().flat_map(|class| IN_CLASS.map(|file| class * file)).collect();
        Mix {
            directory: Alias::new(&zipf),
            file: Alias::new(&files),
            directories: manifest.directories,
            bytes: manifest.bytes(),
        }
    }

    /// The index of a message: they are all different, and in the order of the files.
    pub(super) fn sample(&self, random: &mut fastrand::Rng) -> u32 {
        self.directory.sample(random) * FILES as u32 + self.file.sample(random)
    }

    /// How many requests a session has; 7.3 on average.
    pub(super) fn session_len(&self, random: &mut fastrand::Rng) -> u32 {
        if random.f64() < SINGLE { 1 } else { random.u32(5..=15) }
    }
}

#[cfg(test)]
mod tests {
    use super::{CLASSES, FILES, IN_CLASS, Manifest, Mix};

    /// Whether something of probability `p` was seen as often as it should be, by six standard
    /// deviations.
    fn check(seen: u32, of: u32, p: f64) {
        let expected = f64::from(of) * p;
        let bound = 6.0 * (expected * (1.0 - p)).sqrt();
        assert!((f64::from(seen) - expected).abs() < bound, "{seen} of {of}, expected {expected}");
    }

    #[test]
    fn the_mix_is_that_of_specweb99() {
        const COUNT: u32 = 400_000;
        assert!((CLASSES.iter().sum::<f64>() - 1.0).abs() < 1e-9);
        assert!((IN_CLASS.iter().sum::<f64>() - 0.999).abs() < 1e-9);
        let mix = Mix::new(&Manifest::usual(100));
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
                check(files.iter().sum(), COUNT, CLASSES[class]);
                for (file, &seen) in files.iter().enumerate() {
                    check(seen, COUNT, CLASSES[class] * IN_CLASS[file] / 0.999);
                }
            }
        }
    }

    #[test]
    fn sessions_are_those_of_specweb99() {
        const COUNT: u32 = 100_000;
        let mix = Mix::new(&Manifest::usual(1));
        let mut random = fastrand::Rng::with_seed(7);
        let mut seen = [0; 16];
        for _ in 0..COUNT {
            seen[mix.session_len(&mut random) as usize] += 1;
        }
        assert_eq!(seen[0] + seen[2] + seen[3] + seen[4], 0);
        check(seen[1], COUNT, 0.3);
        seen[5..].iter().for_each(|&seen| check(seen, COUNT, 0.7 / 11.0));
        let mean: f64 = (0..).zip(seen).map(|(len, seen)| f64::from(len * seen)).sum();
        // The variance of a session's length is 0.3 + 0.7 * 110 - 7.3^2.
        let bound = 6.0 * (24.01 / f64::from(COUNT)).sqrt();
        assert!((mean / f64::from(COUNT) - 7.3).abs() < bound, "{mean}");
    }
}

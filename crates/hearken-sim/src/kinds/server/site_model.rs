//! The files of a simulated site, and their versions.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use hearken::timer::Time;

use crate::content;

/// A version of a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Version {
    /// Position in the sequence at which the content starts.
    phase: usize,
    /// Length of the content in bytes.
    pub(super) length: u64,
    /// Time until which it is current.
    pub(super) until: Option<Time>,
    /// Modification time in seconds since 1970.
    pub(super) modified: u64,
}

/// The time of a change, and the time of day in seconds since 1970.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Change {
    pub(super) at: Time,
    pub(super) modified: u64,
}

impl Version {
    /// Returns whether the content has `bytes` at `offset`.
    pub(super) fn contains(&self, offset: u64, bytes: &[u8]) -> bool {
        offset + bytes.len() as u64 <= self.length && content::contains(self.phase, offset, bytes)
    }

    /// Returns the content.
    pub(super) fn content(&self) -> Vec<u8> {
        let mut content = Vec::with_capacity(self.length as usize);
        content::append(self.phase, self.length, &mut content);
        content
    }
}

/// A file.
#[derive(Debug, Default)]
pub(super) struct File {
    /// Name, relative to the root.
    pub(super) name: String,
    /// All versions, the current one last.
    pub(super) versions: Vec<Version>,
}

/// The model of a site.
#[derive(Debug, Default)]
pub(super) struct SiteModel {
    /// The files.
    pub(super) files: Vec<File>,
    /// The content of each ETag: file and version.
    pub(super) etags: BTreeMap<String, (usize, usize)>,
    versions: usize,
}

/// The model, shared by programs.
pub(super) type SharedModel = Rc<RefCell<SiteModel>>;

impl SiteModel {
    /// Adds a file.
    pub(super) fn add(&mut self, name: String, length: u64, now: Change) -> &Version {
        self.files.push(File { name, versions: Vec::new() });
        self.replace(self.files.len() - 1, length, now)
    }

    /// Adds a version of a file with new content.
    pub(super) fn replace(&mut self, file: usize, length: u64, now: Change) -> &Version {
        self.versions += 1;
        let phase = self.versions.wrapping_mul(7919) % content::PERIOD;
        self.push(file, phase, length, now)
    }

    /// Adds a version of a file that is a part of the current one.
    pub(super) fn truncate(&mut self, file: usize, length: u64, now: Change) {
        if let Some(&Version { phase, length: before, .. }) = self.files[file].versions.last() {
            self.push(file, phase, length.min(before), now);
        }
    }

    fn push(&mut self, file: usize, phase: usize, length: u64, now: Change) -> &Version {
        let versions = &mut self.files[file].versions;
        if let Some(current) = versions.last_mut() {
            current.until = Some(now.at);
        }
        versions.push(Version { phase, length, until: None, modified: now.modified });
        &versions[versions.len() - 1]
    }

    /// Returns the versions that were current at any time since `from`, as bits.
    pub(super) fn current_since(&self, file: usize, from: Time) -> u64 {
        let versions = self.files[file].versions.iter().enumerate().take(64);
        let current = versions.filter(|(_, version)| version.until.is_none_or(|end| end >= from));
        current.fold(0, |bits, (index, _)| bits | 1 << index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_recognise_their_own_content_only() {
        let mut model = SiteModel::default();
        let now = Change::default();
        let first = *model.add("a".to_owned(), 200_000, now);
        let second = *model.replace(0, 200_000, now);
        let content = first.content();
        assert_eq!(content.len(), 200_000);
        assert!(first.contains(0, &content) && first.contains(70_000, &content[70_000..150_000]));
        assert!(!first.contains(1, &content[..8]) && !second.contains(0, &content[..8]));
        assert!(!first.contains(199_999, &content[..2]));
    }
}

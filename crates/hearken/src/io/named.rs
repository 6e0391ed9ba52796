//! Settings that are selected by name.

/// The error for a name that a setting does not have.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("unknown {setting} '{name}' (available: {known})")]
pub struct UnknownName {
    pub(super) setting: &'static str,
    pub(super) name: String,
    pub(super) known: String,
}

/// Implements `ALL`, `name`, `Display` and `FromStr` for an enum.
macro_rules! named {
    ($type:ident, $setting:literal, $($variant:ident => $name:literal),+) => {
        impl $type {
            /// All values.
            pub const ALL: &[$type] = &[$($type::$variant),+];

            /// Returns the name by which it is selected.
            pub const fn name(self) -> &'static str {
                match self {
                    $($type::$variant => $name),+
                }
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }

        impl std::str::FromStr for $type {
            type Err = $crate::io::UnknownName;

            fn from_str(name: &str) -> Result<$type, $crate::io::UnknownName> {
                $type::ALL.iter().copied().find(|known| known.name() == name).ok_or_else(|| {
                    $crate::io::UnknownName {
                        setting: $setting,
                        name: name.to_owned(),
                        known: [$($name),+].join(", "),
                    }
                })
            }
        }
    };
}
pub(super) use named;

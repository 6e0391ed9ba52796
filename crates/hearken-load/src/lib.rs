//! An open-loop HTTP load generator that tells the truth under overload.

//! A value that may be none, which is then said.

/// What `none` stands for, too, so that the command line can take back what a file says.
#[derive(Clone, Debug)]
pub(crate) struct Perhaps<T>(pub(crate) Option<T>);

/// Parses `none`, or what `parse` does.
pub(crate) fn perhaps<T>(
    parse: fn(&str) -> Result<T, String>,
) -> impl Fn(&str) -> Result<Perhaps<T>, String> + Clone {
    move |text| match text {
        "none" => Ok(Perhaps(None)),
        _ => parse(text).map(|value| Perhaps(Some(value))),
    }
}

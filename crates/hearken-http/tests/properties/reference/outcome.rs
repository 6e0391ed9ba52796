//! Conversion of the parser's results to results of the reference parser.

use hearken_http::conditional::TagList;
use hearken_http::{Reject, Request};

use super::parser::{Failure, Parsed};

fn parsed(request: &Request<'_>) -> Parsed {
    let owned = |value: Option<&[u8]>| value.map(<[u8]>::to_vec);
    let list = |list: Option<TagList<'_>>| {
        list.map(|list| list.values().collect::<Vec<_>>().join(&b","[..]))
    };
    Parsed {
        method: request.method.as_bytes().to_vec(),
        target: request.raw_target.to_vec(),
        path: request.target().path_and_query().map(|(path, _)| path.to_vec()),
        is_11: request.version == hearken_http::Version::Http11,
        host: owned(request.host),
        body: request.body,
        keep_alive: request.keep_alive,
        expect_continue: request.expect_continue,
        upgrade: owned(request.upgrade()),
        is_plain: request.is_plain(),
        field_values: [
            owned(request.range()),
            list(request.if_match()),
            owned(request.if_modified_since()),
            list(request.if_none_match()),
            owned(request.if_unmodified_since()),
            owned(request.if_range()),
        ]
        .to_vec(),
        fields: request.fields().map(|(name, value)| (name.to_vec(), value.to_vec())).collect(),
        head_len: request.head_len,
    }
}

/// Converts a result of the parser to a result of the reference parser.
pub(crate) fn outcome(result: Result<Option<Request<'_>>, Reject>) -> Result<Parsed, Failure> {
    match result {
        Ok(Some(request)) => Ok(parsed(&request)),
        Ok(None) => Err(Failure::Incomplete),
        Err(reject) => Err(Failure::Rejected(reject.status)),
    }
}

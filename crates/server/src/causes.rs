//! Text of an error with its causes.

use std::{error::Error, iter::successors};

/// An error and its causes, separated by colons: the first alone often does not say why.
pub(crate) fn causes(error: &(dyn Error + 'static)) -> String {
    let all = successors(Some(error), |&error| error.source());
    all.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

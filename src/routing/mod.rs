//! Routes: which request belongs to which route. Pure text matching; knows no configuration.
//!
//! `METHOD[|METHOD]… /seg/{name}/*`: a `{name}` stands for one non-empty segment, a `*` (last only) for
//! the rest of the path, even an empty one; the method `*` is any. Segments compare percent-decoded, so
//! that `/pay%6Dents` can't slip past the route of `/payments`. A trailing slash is another path, and HEAD
//! is not GET.
//!
//! Order of preference, segment by segment: literal, parameter, wildcard; on one path then a named method
//! before `*`. A route whose path fits but whose method does not is passed over for the next, so that
//! `* /*` catches what the named routes leave. The order of the routes never matters.

mod path;
mod pattern;
mod router;

pub use path::{Ambiguous, check};
pub use pattern::{Methods, Pattern, PatternError, Segment};
pub use router::{Conflict, Match, NotFound, Router};

//! What a rule asks for and can't have. Never a reason to lose a response: it is counted and logged, and the
//! event says what it can, or waits for a person.

/// What a rule asks for and can't have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Unmet {
    /// There is no key where the rule takes it from, or it can't be one: the entry's id stands in.
    Key,
    /// A pointer leads to nothing in the request: `null` stands in.
    InRequest,
    /// A pointer leads to nothing in the response: `null` stands in.
    InResponse,
    /// The request was claimed by a gateway that did not keep what the event says of it.
    RequestNotKept,
    /// The request is encoded (gzip): nobody reads in it here.
    RequestEncoded,
    /// The response was cut, or larger than what is kept.
    ResponseNotKept,
    /// The response is encoded (gzip).
    ResponseEncoded,
    /// The condition reads in the response, which is not JSON.
    ResponseNotJson,
    /// The condition reads a value that two readers could take for different things.
    ResponseAmbiguous,
    /// The event says more than its queue takes.
    TooLarge,
}

impl Unmet {
    /// As the metric names it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::InRequest => "in_request",
            Self::InResponse => "in_response",
            Self::RequestNotKept => "request_not_kept",
            Self::RequestEncoded => "request_encoded",
            Self::ResponseNotKept => "response_not_kept",
            Self::ResponseEncoded => "response_encoded",
            Self::ResponseNotJson => "response_not_json",
            Self::ResponseAmbiguous => "response_ambiguous",
            Self::TooLarge => "too_large",
        }
    }

    /// Why the event waits for a person; `None` where it need not.
    #[must_use]
    pub fn parks(self) -> Option<&'static str> {
        match self {
            Self::Key | Self::InRequest | Self::InResponse => None,
            Self::RequestNotKept => Some("what it says of the request was not kept when the request was claimed"),
            Self::RequestEncoded => Some("it says something of a request that is encoded"),
            Self::ResponseNotKept => Some("it depends on the response, which was not kept"),
            Self::ResponseEncoded => Some("it depends on the response, which is encoded"),
            Self::ResponseNotJson => Some("its condition reads in the response, which is not JSON"),
            Self::ResponseAmbiguous => Some("its condition reads a value of the response that is given twice"),
            Self::TooLarge => Some("it is larger than its queue takes"),
        }
    }
}

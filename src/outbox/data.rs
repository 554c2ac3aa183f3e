//! What an event says.

use bytes::Bytes;

use super::seed::{Content, Seed, content_of};
use super::unmet::Unmet;
use crate::entry::{Pointer, StoredResponse, json};

/// What an event says of its request and response.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Data {
    /// The response's body, byte for byte, with its content type.
    #[default]
    Response,
    /// The request's body, byte for byte, with its content type.
    Request,
    /// A JSON document made of parts of both.
    Template(Template),
}

/// A JSON document with places to be filled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Template {
    /// JSON as it stands.
    Literal(Box<str>),
    /// The request's value at the pointer, exactly as written there.
    Request(Pointer),
    /// The response's value at the pointer, exactly as written there.
    Response(Pointer),
    /// Members in this order.
    Object(Vec<(Box<str>, Template)>),
    /// Elements.
    Array(Vec<Template>),
}

/// What came of a rule's data.
#[derive(Debug)]
pub(super) struct Rendered {
    pub(super) content: Content,
    pub(super) unmet: Vec<Unmet>,
}

impl Data {
    /// Both bodies, as the members `request` and `response` of one JSON document.
    #[must_use]
    pub fn both() -> Self {
        let member = |name: &str, of: fn(Pointer) -> Template| (name.into(), of(Pointer::root()));
        Self::Template(Template::Object(vec![
            member("request", Template::Request),
            member("response", Template::Response),
        ]))
    }

    /// Whether it says anything of the request.
    pub(super) fn needs_request(&self) -> bool {
        self.needs_whole_request() || !self.request_pointers().is_empty()
    }

    /// Whether it says what the request's body is, byte for byte.
    pub(super) fn needs_whole_request(&self) -> bool {
        matches!(self, Self::Request)
    }

    /// Whether it, or what it is to be decided by, says anything of the response.
    pub(super) fn needs_response(&self) -> bool {
        match self {
            Self::Response => true,
            Self::Request => false,
            Self::Template(template) => template.needs_response(),
        }
    }

    /// Where in the request it looks.
    pub(super) fn request_pointers(&self) -> Vec<&Pointer> {
        let mut pointers = Vec::new();
        if let Self::Template(template) = self {
            template.collect(&mut pointers);
        }
        pointers
    }

    /// Fills in what is known.
    pub(super) fn render(&self, seed: Option<&Seed>, response: Result<&StoredResponse, Unmet>) -> Rendered {
        let whole = match self {
            Self::Response => response.map(content_of),
            Self::Request => seed.map_or(Err(Unmet::RequestNotKept), Seed::request),
            Self::Template(template) => {
                let mut filling = Filling { seed, response, out: Vec::new(), unmet: Vec::new() };
                filling.fill(template);
                let content = Content { content_type: "application/json".into(), bytes: filling.out.into() };
                return Rendered { content, unmet: filling.unmet };
            }
        };
        match whole {
            Ok(content) => Rendered { content, unmet: Vec::new() },
            Err(unmet) => {
                let nothing = Content { content_type: "application/json".into(), bytes: Bytes::from_static(b"null") };
                Rendered { content: nothing, unmet: vec![unmet] }
            }
        }
    }
}

impl Template {
    fn collect<'t>(&'t self, pointers: &mut Vec<&'t Pointer>) {
        match self {
            Self::Literal(_) | Self::Response(_) => {}
            Self::Request(pointer) => pointers.push(pointer),
            Self::Object(members) => members.iter().for_each(|(_, member)| member.collect(pointers)),
            Self::Array(elements) => elements.iter().for_each(|element| element.collect(pointers)),
        }
    }

    fn needs_response(&self) -> bool {
        match self {
            Self::Literal(_) | Self::Request(_) => false,
            Self::Response(_) => true,
            Self::Object(members) => members.iter().any(|(_, member)| member.needs_response()),
            Self::Array(elements) => elements.iter().any(Self::needs_response),
        }
    }
}

/// A template that is being filled.
struct Filling<'a> {
    seed: Option<&'a Seed>,
    response: Result<&'a StoredResponse, Unmet>,
    out: Vec<u8>,
    unmet: Vec<Unmet>,
}

impl Filling<'_> {
    fn fill(&mut self, template: &Template) {
        match template {
            Template::Literal(json) => self.out.extend_from_slice(json.as_bytes()),
            Template::Request(pointer) => {
                let part = self.seed.map_or(Err(Unmet::RequestNotKept), |seed| seed.part(pointer));
                let part = part.and_then(|part| part.map(|part| &part[..]).ok_or(Unmet::InRequest));
                self.put(part);
            }
            Template::Response(pointer) => {
                let part = self.response.and_then(|response| {
                    let found = json::excerpt(&response.body, pointer).ok().flatten();
                    found.map(str::as_bytes).ok_or(Unmet::InResponse)
                });
                self.put(part);
            }
            Template::Object(members) => {
                self.out.push(b'{');
                for (index, (name, member)) in members.iter().enumerate() {
                    if index > 0 {
                        self.out.push(b',');
                    }
                    self.out.extend_from_slice(serde_json::Value::from(&**name).to_string().as_bytes());
                    self.out.push(b':');
                    self.fill(member);
                }
                self.out.push(b'}');
            }
            Template::Array(elements) => {
                self.out.push(b'[');
                for (index, element) in elements.iter().enumerate() {
                    if index > 0 {
                        self.out.push(b',');
                    }
                    self.fill(element);
                }
                self.out.push(b']');
            }
        }
    }

    fn put(&mut self, part: Result<&[u8], Unmet>) {
        match part {
            Ok(json) => self.out.extend_from_slice(json),
            Err(unmet) => {
                self.out.extend_from_slice(b"null");
                if !self.unmet.contains(&unmet) {
                    self.unmet.push(unmet);
                }
            }
        }
    }
}

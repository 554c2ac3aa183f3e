//! Fields that say who sends a request.

use http::{HeaderMap, HeaderName, HeaderValue};

use super::Principal;

/// The fields in which an upstream is told who sends a request. Nobody else's word is in them.
#[derive(Debug, Clone, Default)]
pub struct Told {
    /// The subject.
    pub subject: Option<HeaderName>,
    /// Its tenant.
    pub tenant: Option<HeaderName>,
    /// What it may do, separated by spaces.
    pub scopes: Option<HeaderName>,
}

impl Told {
    /// Whether anything is told.
    pub(super) fn is_any(&self) -> bool {
        self.names().next().is_some()
    }

    /// Removes what a client says in them.
    pub(super) fn cleanse(&self, headers: &mut HeaderMap) {
        for name in self.names() {
            headers.remove(name);
            remove_lookalikes(name, headers);
        }
    }

    /// Says in them who `sender` is.
    pub(super) fn write(&self, sender: Option<&Principal>, headers: &mut HeaderMap) {
        self.cleanse(headers);
        let Some(sender) = sender else { return };
        put(self.subject.as_ref(), sender.subject(), headers);
        put(self.tenant.as_ref(), sender.tenant(), headers);
        if self.scopes.is_some() {
            put(self.scopes.as_ref(), Some(&sender.scopes.join(" ")), headers);
        }
    }

    fn names(&self) -> impl Iterator<Item = &HeaderName> {
        [&self.subject, &self.tenant, &self.scopes].into_iter().flatten()
    }
}

/// Names with control characters are refused before, so every one can be a field's value.
fn put(name: Option<&HeaderName>, value: Option<&str>, headers: &mut HeaderMap) {
    if let (Some(name), Some(value)) = (name, value.and_then(|value| HeaderValue::from_bytes(value.as_bytes()).ok())) {
        headers.insert(name, value);
    }
}

/// Servers of the CGI family read `X_Subject` as `X-Subject`.
pub(super) fn remove_lookalikes(name: &HeaderName, headers: &mut HeaderMap) {
    let plain = |name: &HeaderName| name.as_str().replace('_', "-");
    let wanted = plain(name);
    let is_alike = |other: &HeaderName| other != name && plain(other) == wanted;
    let alike: Vec<HeaderName> = headers.keys().filter(|other| is_alike(other)).cloned().collect();
    for other in alike {
        headers.remove(other);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_client_says_in_them_goes_however_it_spells_the_name() {
        let told = Told { subject: Some(HeaderName::from_static("x-subject")), ..Told::default() };
        let mut headers = HeaderMap::new();
        for name in ["x-subject", "x_subject", "x-subject", "x-subjects"] {
            headers.append(name, HeaderValue::from_static("forged"));
        }
        told.write(None, &mut headers);
        assert_eq!(headers.keys().map(HeaderName::as_str).collect::<Vec<_>>(), ["x-subjects"]);
        let ann = Principal { subject: Some("ann".into()), ..Principal::default() };
        told.write(Some(&ann), &mut headers);
        assert_eq!(headers["x-subject"], "ann");
    }
}

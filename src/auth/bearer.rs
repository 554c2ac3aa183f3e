//! The token of a request (RFC 6750, section 2.1).

use http::{HeaderMap, header};

use super::AuthError;

/// The token of `Authorization: Bearer`, the only place where one is looked for: in a URL or a body it would be logged.
pub(super) fn token(headers: &HeaderMap) -> Result<&str, AuthError> {
    let mut lines = headers.get_all(header::AUTHORIZATION).iter();
    let line = match (lines.next(), lines.next()) {
        (None, _) => return Err(AuthError::NoToken),
        (Some(_), Some(_)) => return Err(AuthError::TwoTokens),
        (Some(line), None) => line.to_str().map_err(|_| AuthError::NoToken)?,
    };
    let (scheme, token) = line.trim().split_once(' ').ok_or(AuthError::NoToken)?;
    match token.trim_start() {
        "" => Err(AuthError::NoToken),
        token if scheme.eq_ignore_ascii_case("bearer") => Ok(token),
        _ => Err(AuthError::NoToken),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn there_is_one_token_or_none() {
        let table: [(&[&str], Result<&str, AuthError>); 9] = [
            (&[], Err(AuthError::NoToken)),
            (&["Bearer a.b.c"], Ok("a.b.c")),
            (&["bearer  a.b.c "], Ok("a.b.c")),
            (&["Bearer"], Err(AuthError::NoToken)),
            (&["Bearer "], Err(AuthError::NoToken)),
            (&["Basic YTpi"], Err(AuthError::NoToken)),
            (&["a.b.c"], Err(AuthError::NoToken)),
            (&["Bearer a.b.c", "Bearer a.b.c"], Err(AuthError::TwoTokens)),
            (&["Basic YTpi", "Bearer a.b.c"], Err(AuthError::TwoTokens)),
        ];
        for (lines, expected) in table {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(header::AUTHORIZATION, HeaderValue::from_str(line).unwrap());
            }
            assert_eq!(token(&headers), expected, "{lines:?}");
        }
    }
}

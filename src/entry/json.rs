//! JSON by meaning.

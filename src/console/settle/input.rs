//! What is typed in for a decision. It outlives whatever is wrong with it.

use maud::{Markup, html};

use crate::console::form::Form;
use crate::console::guard::Operator;
use crate::console::layout;
use crate::engine::by_hand::Word;
use crate::engine::desk::Version;
use crate::entry::EntryId;
use crate::http::admin::given::{GivenResponse, GivenWord, Outcome};

/// A decision as it is typed in.
#[derive(Debug)]
pub(in crate::console) struct Input {
    /// Which entries, each as it was seen.
    pub(in crate::console) picks: Vec<(EntryId, Version)>,
    outcome: String,
    status: String,
    content_type: String,
    body: String,
    reason: String,
    actor: String,
}

/// What is wrong with it, and where.
#[derive(Debug)]
pub(in crate::console) struct Wrong {
    field: &'static str,
    why: String,
}

impl Input {
    /// What a form says.
    pub(super) fn read(form: &Form, operator: &Operator) -> Self {
        let text = |name: &str, otherwise: &str| match form.all(name).next() {
            Some(given) => given.to_owned(),
            None => otherwise.to_owned(),
        };
        let pick = |pick: &str| {
            let (id, version) = pick.split_once('.')?;
            Some((EntryId::from_hex(id)?, Version::from_hex(version)?))
        };
        Self { picks: form.all("pick").filter_map(pick).collect(), ..Self::empty(operator, &text) }
    }

    /// Nothing typed in yet, for these.
    pub(in crate::console) fn new(picks: Vec<(EntryId, Version)>, operator: &Operator) -> Self {
        Self { picks, ..Self::empty(operator, &|_, otherwise| otherwise.to_owned()) }
    }

    fn empty(operator: &Operator, text: &dyn Fn(&str, &str) -> String) -> Self {
        Self {
            picks: Vec::new(),
            outcome: text("outcome", ""),
            status: text("status", "200"),
            content_type: text("content_type", "application/json"),
            body: text("body", ""),
            reason: text("reason", ""),
            actor: text("actor", &operator.name),
        }
    }

    /// The decision, by the API's own rules.
    pub(super) fn word(&self, operator: &Operator) -> Result<Word, Wrong> {
        let wrong = |field, why: &str| Err(Wrong { field, why: why.to_owned() });
        let outcome = match &*self.outcome {
            "completed" => Outcome::Completed,
            "not_executed" => Outcome::NotExecuted,
            _ => return wrong("outcome", "Say what became of the request."),
        };
        let named = operator.authority.subject().is_some();
        if !named && self.actor.trim().is_empty() {
            return wrong("actor", "Say who you are: it is kept on record.");
        }
        if self.reason.trim().is_empty() {
            return wrong("reason", "Say why: it is kept on record, and whoever looks at it later has nothing else.");
        }
        let response = match outcome {
            Outcome::Completed => Some(self.response()?),
            Outcome::NotExecuted => None,
        };
        let actor = (!named).then(|| self.actor.clone());
        let given = GivenWord { outcome, response, reason: self.reason.clone(), actor };
        given.read(&operator.authority).map_err(|problem| {
            let why = problem.more().unwrap_or("That can't be recorded.").to_owned();
            let field = ["reason", "actor"].into_iter().find(|field| why.starts_with(&format!("`{field}`")));
            Wrong { field: field.unwrap_or("status"), why }
        })
    }

    fn response(&self) -> Result<GivenResponse, Wrong> {
        let wrong = |_| Wrong { field: "status", why: "The status is a number from 200 to 499.".to_owned() };
        let status = self.status.trim().parse().map_err(wrong)?;
        let content_type = self.content_type.trim();
        let is_typed = !self.body.is_empty() && !content_type.is_empty();
        let headers = is_typed.then(|| ("content-type".to_owned(), content_type.to_owned()));
        // Browsers end lines as networks do.
        let body = self.body.replace("\r\n", "\n");
        Ok(GivenResponse { status, headers: headers.into_iter().collect(), body: Some(body), body_base64: None })
    }

    fn picks(&self) -> Markup {
        html! {
            @for (id, version) in &self.picks {
                input type="hidden" name="pick" value=(format!("{}.{version}", id.to_hex()));
            }
        }
    }

    /// All of it, for the next step.
    pub(super) fn hidden(&self) -> Markup {
        let fields = [
            ("outcome", &self.outcome),
            ("status", &self.status),
            ("content_type", &self.content_type),
            ("body", &self.body),
            ("reason", &self.reason),
            ("actor", &self.actor),
        ];
        html! {
            (self.picks())
            @for (name, value) in fields { input type="hidden" name=(name) value=(value); }
        }
    }
}

/// The form for a decision.
pub(in crate::console) fn fields(operator: &Operator, input: &Input, wrong: Option<&Wrong>) -> Markup {
    let is_wrong = |field: &str| wrong.is_some_and(|wrong| wrong.field == field).then_some("true");
    let describes = |field: &str, hint: Option<&'static str>| match (is_wrong(field), hint) {
        (Some(_), Some(hint)) => Some(format!("wrong {hint}")),
        (Some(_), None) => Some("wrong".to_owned()),
        (None, hint) => hint.map(str::to_owned),
    };
    let answers =
        if input.picks.len() == 1 { "The answer that retries get" } else { "The answer that retries of each get" };
    html! {
        form.card.settle method="post" action="/console/settle" {
            (layout::token(operator))
            (input.picks())
            @if let Some(wrong) = wrong { p.alert #wrong role="alert" tabindex="-1" autofocus { (wrong.why) } }
            fieldset {
                legend { "What became of it?" }
                (choice(input, "completed", "It happened",
                    "The service's books have it. Retries get the answer below; its events are announced; nothing is sent. \
                     If it did not happen after all, the customer believes to have paid, and has not."))
                (choice(input, "not_executed", "It did not happen",
                    "The service's books do not have it, and it can't come any more. The key is new again, and the next \
                     retry is executed. If it did happen after all, the customer pays twice."))
            }
            fieldset.answer {
                legend { (answers) }
                p.hint { "For what happened: as the service would have answered, since programs read it." }
                div.row {
                    label { "Status" input name="status" inputmode="numeric" size="4" value=(input.status) aria-invalid=[is_wrong("status")] aria-describedby=[describes("status", None)]; }
                    label { "Content type" input name="content_type" value=(input.content_type); }
                }
                label for="body" { "Body" }
                textarea #body name="body" rows="4" spellcheck="false" { "\n" (input.body) }
            }
            label for="reason" { "Why" }
            textarea #reason name="reason" rows="2" maxlength="2000" aria-invalid=[is_wrong("reason")] aria-describedby=[describes("reason", Some("reason-says"))] { "\n" (input.reason) }
            p.hint #reason-says { "Where you have looked, and what you have seen there. Kept on record." }
            @match operator.authority.subject() {
                Some(subject) => p { "On record as " strong { (subject) } "." },
                None => {
                    label for="actor" { "Your name" }
                    input #actor name="actor" value=(input.actor) maxlength="200" autocomplete="name" aria-invalid=[is_wrong("actor")] aria-describedby=[describes("actor", None)];
                }
            }
            div.bar {
                button name="step" value="preview" { "Show what this does" }
                a href="/console/unknown" { "Leave it" }
            }
        }
    }
}

fn choice(input: &Input, value: &str, name: &str, says: &str) -> Markup {
    html! {
        label.choice {
            input type="radio" name="outcome" value=(value) checked[input.outcome == value];
            span { strong { (name) } br; (says) }
        }
    }
}

//! What is typed in for dead letters. It outlives whatever is wrong with it.

use maud::{Markup, html};

use crate::console::form::Form;
use crate::console::guard::Operator;
use crate::console::layout;
use crate::engine::desk::Actor;
use crate::http::admin::given::{MAX_ACTOR_BYTES, MAX_REASON_BYTES};
use crate::outbox::desk::{Action, State};
use crate::outbox::event::EventId;

/// An order as it is typed in.
#[derive(Debug)]
pub(in crate::console) struct Input {
    pub(super) ids: Vec<EventId>,
    action: String,
    reason: String,
    actor: String,
}

/// What is wrong with it, and where.
#[derive(Debug)]
pub(in crate::console) struct Wrong {
    field: &'static str,
    why: &'static str,
}

impl Input {
    /// What a form says.
    pub(super) fn read(form: &Form, operator: &Operator) -> Self {
        Self {
            ids: form.all("pick").filter_map(super::read_id).collect(),
            action: form.get("action").to_owned(),
            reason: form.get("reason").to_owned(),
            actor: form.all("actor").next().unwrap_or(&operator.name).to_owned(),
        }
    }

    /// Nothing typed in yet, for one.
    pub(in crate::console) fn of(id: &str) -> Self {
        let ids = super::read_id(id).into_iter().collect();
        Self { ids, action: String::new(), reason: String::new(), actor: String::new() }
    }

    /// What is to be done, if it is said by whom and why.
    pub(super) fn action(&self, operator: &Operator) -> Result<Action, Wrong> {
        let wrong = |field, why| Err(Wrong { field, why });
        let action = match &*self.action {
            "retry" => Action::Retry,
            "discard" => Action::DISCARD,
            _ => return wrong("action", "Say what is to be done."),
        };
        if self.reason.trim().is_empty() {
            return wrong("reason", "Say why: it is kept on record.");
        }
        if operator.authority.subject().is_none() && self.actor.trim().is_empty() {
            return wrong("actor", "Say who you are: it is kept on record.");
        }
        if self.reason.trim().len() > MAX_REASON_BYTES {
            return wrong("reason", "That is longer than what is kept of it: 2000 bytes.");
        }
        if self.actor.trim().len() > MAX_ACTOR_BYTES {
            return wrong("actor", "That is longer than what is kept of it: 200 bytes.");
        }
        Ok(action)
    }

    /// Why, for the record.
    pub(super) fn reason(&self) -> &str {
        self.reason.trim()
    }

    /// Who, for the record.
    pub(super) fn by(&self, operator: &Operator) -> Actor {
        let name = operator.authority.subject().unwrap_or(self.actor.trim());
        Actor { name: name.into(), authority: operator.authority.as_str().into() }
    }

    fn ids(&self) -> Markup {
        html! { @for id in &self.ids { input type="hidden" name="pick" value=(id); } }
    }

    /// All of it, for the next step.
    pub(super) fn hidden(&self) -> Markup {
        html! {
            (self.ids())
            @for (name, value) in [("action", &self.action), ("reason", &self.reason), ("actor", &self.actor)] {
                input type="hidden" name=(name) value=(value);
            }
        }
    }
}

/// The form for letters that are in `state`, as far as anything can be done about them.
pub(in crate::console) fn fields(operator: &Operator, input: &Input, state: State, wrong: Option<&Wrong>) -> Markup {
    let is_wrong = |field: &str| wrong.is_some_and(|wrong| wrong.field == field).then_some("true");
    let describes = |field: &str| is_wrong(field).map(|_| "wrong");
    let discard = Action::DISCARD;
    let actor = if input.actor.is_empty() { &*operator.name } else { &*input.actor };
    html! {
        @if Action::Retry.is_for(state) || discard.is_for(state) {
            form.card.settle method="post" action="/console/letters" {
                (layout::token(operator))
                (input.ids())
                @if let Some(wrong) = wrong { p.alert #wrong role="alert" tabindex="-1" autofocus { (wrong.why) } }
                fieldset {
                    legend { "What is to be done?" }
                    @if Action::Retry.is_for(state) {
                        (choice(input, "retry", "Send it again", "With the same id, and its attempts begin anew. A consumer that remembers ids does nothing if it has it already."))
                    }
                    @if discard.is_for(state) {
                        (choice(input, "discard", "Discard it", "It is never sent: whoever waits for it (points, stock, books) is not going to hear of it. What waited behind it for the same key goes on."))
                    }
                }
                label for="reason" { "Why" }
                textarea #reason name="reason" rows="2" maxlength="1800" aria-invalid=[is_wrong("reason")] aria-describedby=[describes("reason")] { "\n" (input.reason) }
                @match operator.authority.subject() {
                    Some(subject) => p { "On record as " strong { (subject) } "." },
                    None => {
                        label for="actor" { "Your name" }
                        input #actor name="actor" value=(actor) maxlength="200" autocomplete="name" aria-invalid=[is_wrong("actor")] aria-describedby=[describes("actor")];
                    }
                }
                div.bar { button name="step" value="preview" { "Show what this does" } }
            }
        }
    }
}

fn choice(input: &Input, value: &str, name: &str, says: &str) -> Markup {
    html! {
        label.choice {
            input type="radio" name="action" value=(value) checked[input.action == value];
            span { strong { (name) } br; (says) }
        }
    }
}

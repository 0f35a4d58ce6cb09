//! The suite that every backend must pass.

use splitprover_backend_template::Template;

splitprover_harness::conformance_tests!(conforms, "template", |memory| Ok(Template::new(memory.clone())));

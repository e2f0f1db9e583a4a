//! Settings of Towline. Each setting is in exactly one table: the table of its transport, or that of the whole library.
//!
//! A row of a table gives the name, the environment variable, the type, the default, the unit, the possible values and the help
//! text. From the rows, the macro [`settings!`] makes a struct with a documented field for each, its `Default`, and its
//! [`Table`], which reads the environment, checks each value, and gives `towline info` its rows. To add a setting, add a row to
//! the table of its transport (`settings.rs` of its crate) and use the field.
//!
//! A value that a user or a program has given is kept, or is an error ([`InvalidSetting`]). A default may adapt to the values of
//! other settings and to the machine.
//!
//! ```
//! use towline_settings::{Origin, Table, Values, settings};
//!
//! settings! {
//!     /// The settings of an example transport.
//!     pub struct Settings, "example." {
//!         eager_limit_bytes, "TOWLINE_EXAMPLE_EAGER_LIMIT_BYTES": u32 = 4096u32, "B" in Values::range(64, 65_536),
//!             "Longest eager frame, with its header";
//!     }
//! }
//!
//! let mut settings = Settings::default();
//! let mut rows = Vec::new();
//! let environment = |name: &str| name.ends_with("LIMIT_BYTES").then(|| "8192".to_string());
//! settings.read(&environment, &mut rows)?;
//! assert_eq!(settings.eager_limit_bytes, 8192);
//! assert_eq!((rows[0].name, rows[0].value.as_str(), rows[0].unit), ("example.eager_limit_bytes", "8192", "B"));
//! assert_eq!((rows[0].origin, rows[0].default.as_str()), (Origin::Environment, "4096"));
//!
//! settings.eager_limit_bytes = 63;
//! let why = settings.read(&|_| None, &mut rows).unwrap_err();
//! assert_eq!(why.possible, "64 to 65536 B");
//! # Ok::<(), towline_settings::InvalidSetting>(())
//! ```

#![forbid(unsafe_code)]

mod nearest;
mod row;
mod table;
mod values;

pub use nearest::nearest;
pub use row::{InvalidSetting, Origin, Setting};
pub use table::{Row, Table, entries};
pub use values::{Values, unknown};

//! The paths that a file names: in `use` items, in code, in types and in the arguments of macros.

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};

/// An import: the importing file, the imported file, and the name of the imported item.
pub type Import = (String, String, String);

/// A path as it is written (`path`), and the inline modules around it (`within`).
#[derive(Clone, Debug)]
pub struct Named {
    pub within: Vec<String>,
    pub path: Vec<String>,
}

/// The contents of one file: the modules that it declares, the names that it re-exports, and the paths that it names.
#[derive(Default)]
pub struct Found {
    within: Vec<String>,
    /// Modules in files of their own.
    pub children: Vec<Vec<String>>,
    /// Inline modules.
    pub inline: Vec<Vec<String>>,
    /// Re-exports: the exported name (`*` for all names), and the path that it stands for.
    pub exports: Vec<(String, Named)>,
    pub named: Vec<Named>,
    /// Names of the items that this file defines.
    pub defined: Vec<String>,
}

/// Whether an item is only for tests or documentation tests.
fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("test")
            || attribute.path().is_ident("cfg")
                && attribute.meta.require_list().is_ok_and(|list| {
                    let condition = list.tokens.to_string();
                    condition == "test" || condition.starts_with("all (test") || condition == "doctest"
                })
    })
}

fn name_of(item: &syn::Item) -> Option<String> {
    let ident = match item {
        syn::Item::Const(item) => &item.ident,
        syn::Item::Enum(item) => &item.ident,
        syn::Item::Fn(item) => &item.sig.ident,
        syn::Item::Static(item) => &item.ident,
        syn::Item::Struct(item) => &item.ident,
        syn::Item::Trait(item) => &item.ident,
        syn::Item::Type(item) => &item.ident,
        syn::Item::Union(item) => &item.ident,
        syn::Item::Macro(item) => item.ident.as_ref()?,
        // The names of items that a macro such as `bitflags!` creates are unknown.
        _ => return None,
    };
    Some(ident.to_string())
}

impl Found {
    fn path(&mut self, path: Vec<String>) {
        self.named.push(Named { within: self.within.clone(), path });
    }

    fn tree(&mut self, before: &[String], tree: &syn::UseTree, exported: bool) {
        let (path, name) = match tree {
            syn::UseTree::Path(path) => {
                let before = [before, &[path.ident.to_string()]].concat();
                return self.tree(&before, &path.tree, exported);
            }
            syn::UseTree::Group(group) => {
                for tree in &group.items {
                    self.tree(before, tree, exported);
                }
                return;
            }
            syn::UseTree::Name(name) if name.ident == "self" => {
                (before.to_vec(), before.last().cloned().unwrap_or_default())
            }
            syn::UseTree::Name(name) => ([before, &[name.ident.to_string()]].concat(), name.ident.to_string()),
            syn::UseTree::Rename(name) if name.ident == "self" => (before.to_vec(), name.rename.to_string()),
            syn::UseTree::Rename(name) => ([before, &[name.ident.to_string()]].concat(), name.rename.to_string()),
            syn::UseTree::Glob(_) => ([before, &["*".to_string()]].concat(), "*".to_string()),
        };
        if exported {
            self.exports.push((name, Named { within: self.within.clone(), path }));
        } else {
            self.path(path);
        }
    }

    /// Paths that begin with `crate`, `self` or `super` in the arguments of a macro.
    fn tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut colons = 0;
        for token in tokens.into_iter().map(Some).chain([None]) {
            match token {
                Some(TokenTree::Ident(ident)) if path.is_empty() || colons == 2 => {
                    path.push(ident.to_string());
                    colons = 0;
                    continue;
                }
                Some(TokenTree::Punct(punct)) if punct.as_char() == ':' && !path.is_empty() && colons < 2 => {
                    colons += 1;
                    continue;
                }
                other => {
                    self.take_path(&mut path);
                    colons = 0;
                    match other {
                        Some(TokenTree::Group(group)) => self.tokens(group.stream()),
                        Some(TokenTree::Ident(ident)) => path.push(ident.to_string()),
                        _ => {}
                    }
                }
            }
        }
    }

    fn take_path(&mut self, path: &mut Vec<String>) {
        let path = std::mem::take(path);
        if path.len() > 1 && ["crate", "self", "super"].contains(&path[0].as_str()) {
            self.path(path);
        }
    }
}

impl<'ast> Visit<'ast> for Found {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        let attributes = match item {
            syn::Item::Fn(item) => &item.attrs,
            syn::Item::Impl(item) => &item.attrs,
            syn::Item::Mod(item) => &item.attrs,
            syn::Item::Use(item) => &item.attrs,
            syn::Item::Struct(item) => &item.attrs,
            syn::Item::Const(item) => &item.attrs,
            syn::Item::Static(item) => &item.attrs,
            syn::Item::Macro(item) => &item.attrs,
            _ => &Vec::new(),
        };
        if !is_for_tests(attributes) {
            self.defined.extend(name_of(item));
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if !is_for_tests(&item.attrs) {
            visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_stmt(&mut self, statement: &'ast syn::Stmt) {
        if !matches!(statement, syn::Stmt::Local(local) if is_for_tests(&local.attrs)) {
            visit::visit_stmt(self, statement);
        }
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        let name = [&self.within[..], &[item.ident.to_string()]].concat();
        if let Some((_, items)) = &item.content {
            self.inline.push(name.clone());
            let outside = std::mem::replace(&mut self.within, name);
            for item in items {
                self.visit_item(item);
            }
            self.within = outside;
        } else {
            self.children.push(name);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        let exported = !matches!(item.vis, syn::Visibility::Inherited);
        self.tree(&[], &item.tree, exported);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.leading_colon.is_none() {
            self.path(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        }
        visit::visit_path(self, path);
    }

    // `pub(in crate::x)` imports nothing from `crate::x`.
    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}

    fn visit_macro(&mut self, item: &'ast syn::Macro) {
        self.path(item.path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        self.tokens(item.tokens.clone());
    }
}

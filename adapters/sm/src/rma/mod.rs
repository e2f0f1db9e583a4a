pub mod regions;

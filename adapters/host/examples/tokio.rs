//! A service in tokio: each rank answers questions of all others in tasks, beside the other work of the runtime. No thread of the
//! library is needed.
//!
//! `towline run -n 4 -- target/debug/examples/tokio`, after `cargo build -p towline --features tokio --example tokio`

use std::sync::Arc;

use towline::{Any, Builder, Multiple, World};

const QUESTION: u32 = 1;
const ANSWER: u32 = 2;

type AnyError = Box<dyn std::error::Error + Send + Sync>;

fn main() -> Result<(), AnyError> {
    let world = Arc::new(Builder::new().threads(Multiple).build()?);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_io().build()?;
    let sum = runtime.block_on(async {
        world.attach_tokio()?;
        let service = tokio::spawn(serve(Arc::clone(&world)));
        let questions: Vec<_> = (0..world.size()).map(|rank| tokio::spawn(ask(Arc::clone(&world), rank))).collect();
        let mut sum = 0;
        for question in questions {
            sum += question.await??;
        }
        service.await??;
        Ok::<u64, AnyError>(sum)
    })?;
    let size = u64::from(world.size());
    assert_eq!(sum, (0..size).map(|rank| rank * rank).sum());
    if world.rank() == 0 {
        println!("the ranks of {size} know that the sum of their squares is {sum}");
    }
    Ok(())
}

/// Answers one question of each rank.
async fn serve(world: Arc<World<Multiple>>) -> Result<(), AnyError> {
    for _ in 0..world.size() {
        let (_, status) = world.irecv(Any, QUESTION, [0u8; 1])?.await?;
        let square = u64::from(world.rank()).pow(2);
        world.isend(status.source, ANSWER, square.to_le_bytes().to_vec())?.await?;
    }
    Ok(())
}

/// Asks a rank for its square.
async fn ask(world: Arc<World<Multiple>>, rank: u32) -> Result<u64, AnyError> {
    world.isend(rank, QUESTION, [0u8; 1])?.await?;
    let (square, _) = world.irecv(rank, ANSWER, [0u8; 8])?.await?;
    Ok(u64::from_le_bytes(square))
}

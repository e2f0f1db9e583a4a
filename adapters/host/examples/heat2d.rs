//! Simulates heat diffusion on an image. Each channel of a pixel is a temperature, and the edges of the image are insulated.
//!
//! The grid is divided into blocks, one for each rank. In each step a rank exchanges edges with its neighbours: rows as
//! contiguous slices, columns as strided views. All ranks compute a cell with the same operations in the same order, so the
//! image does not depend on the number of ranks.
//!
//! Any number of ranks will do. Without the launcher the program is a job of one rank.
//!
//! ```sh
//! towline run -n 4 -- target/release/examples/heat2d in.png 500 out.png
//! ```

use std::error::Error;
use std::fs::File;
use std::io::{BufReader, BufWriter};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use towline::{View, ViewMut, World, vector};

/// Heat diffusion on INPUT for STEPS steps, to OUTPUT
#[derive(Parser)]
struct Arguments {
    /// A PNG image; only rank 0 needs it
    input: PathBuf,
    /// Number of steps
    steps: u32,
    /// The PNG image to write
    output: PathBuf,
}

/// In each step, a cell changes by this fraction of its difference to each neighbour. The computation is stable up to 0.25.
const CONDUCTIVITY: f64 = 0.2;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    towline::run(|world| diffuse(world, &arguments))
}

fn diffuse(world: &World, arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let mut image = if world.rank() == 0 { Some(Image::read(&arguments.input)?) } else { None };
    let mut shape = image.as_ref().map_or([0; 3], |image| image.shape);
    world.broadcast(0, &mut shape)?;
    let partition = Partition::of(shape, world.size());
    let start = Instant::now();
    if let Some(mut block) = scatter(world, &partition, image.as_ref())? {
        for _ in 0..arguments.steps {
            block.swap_edges(world, &partition)?;
            block.step();
        }
        gather(world, &partition, &block, image.as_mut())?;
    }
    let Some(image) = image else { return Ok(()) };
    image.write(&arguments.output)?;
    let [width, height, channels] = shape;
    println!(
        "{width} x {height} cells of {channels}, {} steps in {} x {} blocks: {:.3} s",
        arguments.steps,
        partition.columns,
        partition.rows,
        start.elapsed().as_secs_f64()
    );
    Ok(())
}

/// The division of the grid into blocks.
struct Partition {
    width: usize,
    height: usize,
    channels: usize,
    columns: u32,
    rows: u32,
}

impl Partition {
    /// Divides the grid into as many blocks as there are ranks, or fewer if there are few cells. Chooses the division with the
    /// shortest edges.
    fn of([width, height, channels]: [u32; 3], ranks: u32) -> Self {
        let fits = |blocks: u32, columns: u32| {
            blocks.is_multiple_of(columns) && columns <= width.max(1) && blocks / columns <= height.max(1)
        };
        let edges = |blocks: u32, columns: u32| {
            u64::from(columns) * u64::from(height) + u64::from(blocks / columns) * u64::from(width)
        };
        let best = |blocks| (1..=blocks).filter(|c| fits(blocks, *c)).min_by_key(|c| (edges(blocks, *c), *c));
        let (columns, rows) =
            (1..=ranks).rev().find_map(|blocks| Some((best(blocks)?, blocks))).map_or((1, 1), |(c, b)| (c, b / c));
        Self { width: width as usize, height: height as usize, channels: channels as usize, columns, rows }
    }

    fn blocks(&self) -> u32 {
        self.columns * self.rows
    }

    fn columns_of(&self, rank: u32) -> Range<usize> {
        part(self.width, self.columns, rank % self.columns)
    }

    fn rows_of(&self, rank: u32) -> Range<usize> {
        part(self.height, self.rows, rank / self.columns)
    }

    /// The rank of the block beside that of `rank`.
    fn neighbour(&self, rank: u32, right: i64, down: i64) -> Option<u32> {
        let column = i64::from(rank % self.columns) + right;
        let row = i64::from(rank / self.columns) + down;
        let inside = (0..i64::from(self.columns)).contains(&column) && (0..i64::from(self.rows)).contains(&row);
        inside.then(|| row as u32 * self.columns + column as u32)
    }

    /// First item and layout of a rank's block in the whole image.
    fn place(&self, rank: u32) -> Result<(usize, towline::Layout<'static>), Box<dyn Error>> {
        let (columns, rows) = (self.columns_of(rank), self.rows_of(rank));
        let line = self.width * self.channels;
        let layout = vector::<f64>(rows.len(), columns.len() * self.channels, line as isize)?;
        Ok((rows.start * line + columns.start * self.channels, layout))
    }
}

fn part(whole: usize, parts: u32, index: u32) -> Range<usize> {
    let at = |index: u32| whole * index as usize / parts as usize;
    at(index)..at(index + 1)
}

/// One rank's cells, with a frame of one cell around them.
struct Block {
    /// Cells and the frame; a line is `line` items long.
    cells: Vec<f64>,
    next: Vec<f64>,
    width: usize,
    height: usize,
    channels: usize,
    line: usize,
    /// The edges that the neighbours above, below, left and right sent.
    edges: [Vec<f64>; 4],
}

impl Block {
    fn new(width: usize, height: usize, channels: usize) -> Self {
        let line = (width + 2) * channels;
        let cells = vec![0.0; line * (height + 2)];
        let edges = [width, width, height, height].map(|cells| vec![0.0; cells * channels]);
        Self { next: cells.clone(), cells, width, height, channels, line, edges }
    }

    /// The index of a cell's first item. Cell 0, 0 is the first that does not belong to the frame.
    fn at(&self, row: usize, column: usize) -> usize {
        (row + 1) * self.line + (column + 1) * self.channels
    }

    /// Layout of the cells without their frame, from the first one on.
    fn inner(&self) -> Result<towline::Layout<'static>, Box<dyn Error>> {
        Ok(vector::<f64>(self.height, self.width * self.channels, self.line as isize)?)
    }

    /// Fills the frame with the neighbours' edges. Where there is no neighbour, the frame gets the values of the cells beside it,
    /// so that no heat leaves the grid.
    fn swap_edges(&mut self, world: &World, partition: &Partition) -> Result<(), Box<dyn Error>> {
        let neighbours = [(0, -1), (0, 1), (-1, 0), (1, 0)].map(|(x, y)| partition.neighbour(world.rank(), x, y));
        let (row, column) =
            (self.width * self.channels, vector::<f64>(self.height, self.channels, self.line as isize)?);
        let starts = [self.at(0, 0), self.at(self.height - 1, 0), self.at(0, 0), self.at(0, self.width - 1)];
        let cells = &self.cells;
        let edges = self.edges.each_mut();
        world.scope(|s| {
            // The upper edge of a block goes to the lower side of its neighbour's frame. `side ^ 1` is the side opposite to
            // `side`.
            for ((side, edge), neighbour) in (0u32..).zip(edges).zip(neighbours) {
                if let Some(neighbour) = neighbour {
                    s.irecv(neighbour, side ^ 1, &mut edge[..])?;
                }
            }
            for ((side, start), neighbour) in (0u32..).zip(starts).zip(neighbours) {
                let Some(neighbour) = neighbour else { continue };
                if side < 2 {
                    s.isend(neighbour, side, &cells[start..start + row])?;
                } else {
                    s.isend_view(neighbour, side, View::new(cells, start, &column)?)?;
                }
            }
            Ok::<(), towline::Error>(())
        })?;
        self.fill_frame(neighbours.map(|neighbour| neighbour.is_some()));
        Ok(())
    }

    fn fill_frame(&mut self, from_neighbour: [bool; 4]) {
        let (row, channels, line) = (self.width * self.channels, self.channels, self.line);
        let first = self.at(0, 0);
        let last = self.at(self.height - 1, 0);
        for (side, own, frame) in [(0, first, first - line), (1, last, last + line)] {
            if from_neighbour[side] {
                self.cells[frame..frame + row].copy_from_slice(&self.edges[side]);
            } else {
                self.cells.copy_within(own..own + row, frame);
            }
        }
        for index in 0..self.height {
            let (first, last) = (self.at(index, 0), self.at(index, self.width - 1));
            for (side, own, frame) in [(2, first, first - channels), (3, last, last + channels)] {
                if from_neighbour[side] {
                    let edge = &self.edges[side][index * channels..(index + 1) * channels];
                    self.cells[frame..frame + channels].copy_from_slice(edge);
                } else {
                    self.cells.copy_within(own..own + channels, frame);
                }
            }
        }
    }

    fn step(&mut self) {
        let (row, channels, line) = (self.width * self.channels, self.channels, self.line);
        for index in 0..self.height {
            let start = self.at(index, 0);
            let lines = |offset: usize| &self.cells[offset..offset + row];
            let (own, above, below) = (lines(start), lines(start - line), lines(start + line));
            let (left, right) = (lines(start - channels), lines(start + channels));
            let next = &mut self.next[start..start + row];
            for i in 0..row {
                let around = (left[i] + right[i]) + (above[i] + below[i]);
                next[i] = own[i] + CONDUCTIVITY * (around - 4.0 * own[i]);
            }
        }
        std::mem::swap(&mut self.cells, &mut self.next);
    }
}

/// Sends each rank its block. `None` on a rank that has none.
fn scatter(world: &World, partition: &Partition, image: Option<&Image>) -> Result<Option<Block>, Box<dyn Error>> {
    let rank = world.rank();
    if rank >= partition.blocks() {
        return Ok(None);
    }
    let mut block = Block::new(partition.columns_of(rank).len(), partition.rows_of(rank).len(), partition.channels);
    let (inner, first) = (block.inner()?, block.at(0, 0));
    let places = (0..partition.blocks()).map(|rank| partition.place(rank)).collect::<Result<Vec<_>, _>>()?;
    let cells = &mut block.cells;
    world.scope(|s| {
        s.irecv_view(0, 10, ViewMut::new(cells, first, &inner)?)?;
        if let Some(image) = image {
            for (rank, (origin, layout)) in (0..).zip(&places) {
                s.isend_view(rank, 10, View::new(&image.cells, *origin, layout)?)?;
            }
        }
        Ok::<(), towline::Error>(())
    })?;
    Ok(Some(block))
}

/// Collects all blocks on rank 0.
fn gather(
    world: &World,
    partition: &Partition,
    block: &Block,
    image: Option<&mut Image>,
) -> Result<(), Box<dyn Error>> {
    let inner = block.inner()?;
    let places = (0..partition.blocks()).map(|rank| partition.place(rank)).collect::<Result<Vec<_>, _>>()?;
    world.scope(|s| {
        s.isend_view(0, 11, View::new(&block.cells, block.at(0, 0), &inner)?)?;
        if let Some(image) = image {
            for (rank, (origin, layout)) in (0..).zip(&places) {
                world.recv_view(rank, 11, ViewMut::new(&mut image.cells, *origin, layout)?)?;
            }
        }
        Ok::<(), towline::Error>(())
    })?;
    Ok(())
}

/// The whole grid, on rank 0.
struct Image {
    /// Width, height, channels.
    shape: [u32; 3],
    color: png::ColorType,
    cells: Vec<f64>,
}

impl Image {
    fn read(path: &Path) -> Result<Self, Box<dyn Error>> {
        let named = |why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
        let file = File::open(path).map_err(|why| named(&why))?;
        let mut decoder = png::Decoder::new(BufReader::new(file));
        decoder.set_transformations(png::Transformations::normalize_to_color8());
        let mut reader = decoder.read_info().map_err(|why| named(&why))?;
        let mut bytes = vec![0; reader.output_buffer_size().ok_or_else(|| named(&"too large"))?];
        let frame = reader.next_frame(&mut bytes).map_err(|why| named(&why))?;
        bytes.truncate(frame.buffer_size());
        let shape = [frame.width, frame.height, frame.color_type.samples() as u32];
        Ok(Self { shape, color: frame.color_type, cells: bytes.into_iter().map(f64::from).collect() })
    }

    fn write(&self, path: &Path) -> Result<(), Box<dyn Error>> {
        let named = |why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
        let file = File::create(path).map_err(|why| named(&why))?;
        let [width, height, _] = self.shape;
        let mut encoder = png::Encoder::new(BufWriter::new(file), width, height);
        encoder.set_color(self.color);
        encoder.set_depth(png::BitDepth::Eight);
        let mut writer = encoder.write_header().map_err(|why| named(&why))?;
        let bytes: Vec<u8> = self.cells.iter().map(|cell| cell.round().clamp(0.0, 255.0) as u8).collect();
        writer.write_image_data(&bytes).map_err(|why| named(&why))?;
        Ok(writer.finish().map_err(|why| named(&why))?)
    }
}

//! The picture: memory by class over time, one panel for each setting, starts and finishes marked.

use std::time::Duration;

use plotters::prelude::*;
use splitprover_core::MemoryClass;
use splitprover_core::memory::LedgerEvent;

use super::measure::Outcome;
use crate::engine::Step;

const WIDTH: u32 = 1400;
const PANEL: u32 = 460;
/// Points of a curve.
const POINTS: usize = 1400;

/// The unit of a scale that ends at `top` bytes.
fn unit(top: u64) -> (&'static str, f64) {
    if top < 4 << 30 { ("MiB", (1u64 << 20) as f64) } else { ("GiB", (1u64 << 30) as f64) }
}

/// From the bottom of the stack to its top. What is beyond `start` comes out of the evaluations.
const STACK: [(&str, Option<MemoryClass>, RGBColor); 8] = [
    ("key", Some(MemoryClass::Key), RGBColor(150, 150, 150)),
    ("staging", Some(MemoryClass::Staging), RGBColor(200, 180, 140)),
    ("backend", Some(MemoryClass::Backend), RGBColor(148, 103, 189)),
    ("witness", Some(MemoryClass::Witness), RGBColor(44, 160, 44)),
    ("evaluations beyond start", None, RGBColor(230, 120, 20)),
    ("evaluations", Some(MemoryClass::Evaluations), RGBColor(31, 119, 180)),
    ("idle in the pool", Some(MemoryClass::PoolIdle), RGBColor(190, 215, 235)),
    ("stuck", Some(MemoryClass::Stuck), RGBColor(214, 39, 40)),
];
const BEYOND: usize = 4;
const EVALUATIONS: usize = 5;

type Bytes = [u64; STACK.len()];

/// For each point in time the bytes in the stack's order, at the moment within the point's span when their sum was greatest.
fn curves(history: &[LedgerEvent], beyond: &[(Duration, u64)], from: Duration, to: Duration) -> Vec<(f64, Bytes)> {
    let place = |event: &LedgerEvent| STACK.iter().position(|(_, class, _)| *class == Some(event.class));
    let ledger = history.iter().filter_map(|event| Some((event.at, place(event)?, event.bytes)));
    let mut events: Vec<_> = ledger.chain(beyond.iter().map(|&(at, bytes)| (at, BEYOND, bytes))).collect();
    events.sort_by_key(|&(at, ..)| at);
    let span = (to.saturating_sub(from)).as_secs_f64().max(1e-6);
    let (mut now, mut at): (Bytes, usize) = ([0; STACK.len()], 0);
    // The ledger's evaluations hold those beyond start as well.
    let sum = |bytes: &Bytes| bytes.iter().sum::<u64>() - bytes[BEYOND];
    let mut points = Vec::with_capacity(POINTS);
    for point in 0..POINTS {
        let end = from + Duration::from_secs_f64(span * (point + 1) as f64 / POINTS as f64);
        let mut most = now;
        while let Some(&(_, place, bytes)) = events.get(at).filter(|(at, ..)| *at <= end) {
            now[place] = bytes;
            if sum(&now) > sum(&most) {
                most = now;
            }
            at += 1;
        }
        most[EVALUATIONS] = most[EVALUATIONS].saturating_sub(most[BEYOND]);
        points.push((span * point as f64 / POINTS as f64, most));
    }
    points
}

/// An SVG document.
pub(super) fn draw(title: &str, outcomes: &[Outcome]) -> Result<String, String> {
    let mut text = String::new();
    let result = draw_into(&mut text, title, outcomes).map_err(|error| error.to_string());
    result.map(|()| text)
}

fn draw_into(text: &mut String, title: &str, outcomes: &[Outcome]) -> Result<(), Box<dyn std::error::Error>> {
    let panels = outcomes.len().max(1);
    let root = SVGBackend::with_string(text, (WIDTH, 40 + PANEL * panels as u32)).into_drawing_area();
    root.fill(&WHITE)?;
    let (head, rest) = root.split_vertically(40);
    head.draw_text(title.trim(), &("sans-serif", 18).into_text_style(&root), (12, 10))?;
    // One scale for all panels, so that they can be compared.
    let peak = outcomes.iter().map(|outcome| outcome.status.memory_peak_bytes.max(outcome.ledger_and_growth()));
    let top = peak.max().unwrap_or(1).max(1 << 20) / 8 * 9;
    let begin = |outcome: &Outcome| outcome.base.at;
    let end = |outcome: &Outcome| outcome.samples.last().map_or(outcome.base.at, |sample| sample.at);
    let longest = outcomes.iter().map(|o| (end(o).saturating_sub(begin(o))).as_secs_f64()).fold(1e-3, f64::max);
    for (outcome, area) in outcomes.iter().zip(rest.split_evenly((panels, 1))) {
        panel(outcome, &area, (begin(outcome), end(outcome)), longest, top)?;
    }
    root.present()?;
    drop((head, rest, root));
    Ok(())
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

fn panel(
    outcome: &Outcome,
    area: &Area<'_>,
    (begin, end): (Duration, Duration),
    longest: f64,
    top: u64,
) -> Result<(), Box<dyn std::error::Error>> {
    let (unit, scale) = unit(top);
    let top = top as f64 / scale;
    // Below zero there is room for the marks.
    let bottom = -0.14 * top;
    let caption = format!(
        "{}: {:.2} proofs/s, peak {:.1} {unit}, evaluations beyond start at most {:.1} {unit}; with a proof: {}",
        outcome.setting.name(),
        outcome.proofs as f64 / outcome.wall.as_secs_f64().max(1e-9),
        outcome.status.memory_peak_bytes as f64 / scale,
        outcome.status.evaluations_beyond_start_peak_bytes as f64 / scale,
        outcome.busy(),
    );
    let mut chart = ChartBuilder::on(area)
        .caption(caption, ("sans-serif", 14))
        .margin(10)
        .x_label_area_size(36)
        .y_label_area_size(64)
        .build_cartesian_2d(0.0..longest * 1.01, bottom..top)?;
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .x_desc("seconds")
        .y_desc(format!("host memory, {unit}"))
        .y_label_formatter(&|value| if *value < 0.0 { String::new() } else { format!("{value:.1}") })
        .draw()?;
    let curves = curves(&outcome.history, &outcome.beyond, begin, end);
    // From the whole stack down, so that each class covers what is above it.
    for (place, (name, _, color)) in STACK.iter().enumerate().rev() {
        if curves.iter().all(|(_, bytes)| bytes[place] == 0) {
            continue;
        }
        let sums = curves.iter().map(|(at, bytes)| (*at, bytes[..=place].iter().sum::<u64>() as f64 / scale));
        chart
            .draw_series(AreaSeries::new(sums, 0.0, color.filled()))?
            .label(*name)
            .legend(|(x, y)| Rectangle::new([(x, y - 5), (x + 14, y + 5)], color.filled()));
    }
    let since = |at: Duration| at.saturating_sub(begin).as_secs_f64();
    // What the process had beside the ledger before the first partition (code, matrices of the key) is left out.
    let other = outcome.base.resident.saturating_sub(outcome.base.ledger);
    let resident =
        outcome.samples.iter().map(|sample| (since(sample.at), sample.resident.saturating_sub(other) as f64 / scale));
    chart
        .draw_series(LineSeries::new(resident, BLACK.stroke_width(1)))?
        .label("resident")
        .legend(|(x, y)| PathElement::new([(x, y), (x + 14, y)], BLACK));
    let budget = outcome.budget as f64 / scale;
    if budget <= top {
        chart
            .draw_series(LineSeries::new([(0.0, budget), (longest, budget)], RED.stroke_width(2)))?
            .label("budget")
            .legend(|(x, y)| PathElement::new([(x, y), (x + 14, y)], RED.stroke_width(2)));
    }
    let marks = [
        (Step::StartBegins, "start called", RGBColor(255, 127, 14), 0.25),
        (Step::Started, "start returned", RGBColor(31, 119, 180), 0.5),
        (Step::Finished, "finished", RGBColor(44, 120, 44), 0.75),
    ];
    for (step, label, color, row) in marks {
        let y = bottom * row;
        let at = outcome.marks.iter().filter(|mark| mark.step == step).map(|mark| since(mark.at));
        let ticks = at.map(|x| PathElement::new([(x, y - 0.012 * top), (x, y + 0.012 * top)], color.stroke_width(1)));
        chart
            .draw_series(ticks)?
            .label(label)
            .legend(move |(x, y)| PathElement::new([(x + 7, y - 5), (x + 7, y + 5)], color.stroke_width(2)));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.3))
        .label_font(("sans-serif", 13))
        .draw()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_peak_is_not_lost_between_two_points() {
        let event = |millis, class, bytes| LedgerEvent { at: Duration::from_millis(millis), class, bytes };
        let history = [
            event(0, MemoryClass::Key, 5),
            event(5000, MemoryClass::Evaluations, 1000),
            event(5000, MemoryClass::Evaluations, 0),
        ];
        let curves = curves(&history, &[(Duration::from_secs(4), 0)], Duration::ZERO, Duration::from_secs(10));
        let most = curves.iter().map(|(_, bytes)| bytes.iter().sum::<u64>()).max();
        assert_eq!((curves.len(), most, curves[POINTS - 1].1.iter().sum::<u64>()), (POINTS, Some(1005), 5));
    }

    #[test]
    fn evaluations_beyond_start_are_told_apart() {
        let event =
            |seconds, bytes| LedgerEvent { at: Duration::from_secs(seconds), class: MemoryClass::Evaluations, bytes };
        let beyond = [(Duration::from_secs(5), 30), (Duration::from_secs(8), 0)];
        let curves = curves(&[event(1, 100), event(8, 70)], &beyond, Duration::ZERO, Duration::from_secs(10));
        let at = |seconds: usize| curves[POINTS / 10 * seconds + 1].1;
        assert_eq!((at(2)[EVALUATIONS], at(2)[BEYOND]), (100, 0));
        assert_eq!((at(6)[EVALUATIONS], at(6)[BEYOND]), (70, 30));
        assert_eq!((at(9)[EVALUATIONS], at(9)[BEYOND]), (70, 0));
    }
}

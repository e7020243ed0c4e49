//! The colours of the runs can be told apart, also with the common forms of colour blindness, and from the paper.

use super::STYLE;

/// Least distance (in OKLab, where 1 is from black to white) of colours drawn with the same kind of line.
const APART: f64 = 0.06;
/// Least contrast of a curve with the paper: that of WCAG for graphics.
const CONTRAST: f64 = 3.0;

/// Linear RGB as it is, and as it is seen without cones for red, green and blue (Machado, Oliveira, Fernandes 2009).
const SIGHTS: [(&str, [[f64; 3]; 3]); 4] = [
    ("all cones", [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]),
    (
        "protanopia",
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    ),
    (
        "deuteranopia",
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    ),
    (
        "tritanopia",
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
    ),
];

type Colour = [f64; 3];

fn product(matrix: &[[f64; 3]; 3], colour: Colour) -> Colour {
    matrix.map(|row| row.iter().zip(colour).map(|(factor, part)| factor * part).sum())
}

/// Linear RGB of `#rrggbb`.
fn linear(hex: &str) -> Colour {
    [1, 3, 5].map(|at| {
        let part = f64::from(u8::from_str_radix(&hex[at..at + 2], 16).expect("a colour")) / 255.0;
        if part <= 0.04045 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) }
    })
}

fn oklab(colour: Colour) -> Colour {
    let cones = product(
        &[
            [0.4122214708, 0.5363325363, 0.0514459929],
            [0.2119034982, 0.6806995451, 0.1073969566],
            [0.0883024619, 0.2817188376, 0.6299787005],
        ],
        colour,
    );
    product(
        &[
            [0.2104542553, 0.7936177850, -0.0040720468],
            [1.9779984951, -2.4285922050, 0.4505937099],
            [0.0259040371, 0.7827717662, -0.8086757660],
        ],
        cones.map(f64::cbrt),
    )
}

fn luminance(colour: Colour) -> f64 {
    0.2126 * colour[0] + 0.7152 * colour[1] + 0.0722 * colour[2]
}

fn contrast(one: &str, other: &str) -> f64 {
    let (one, other) = (luminance(linear(one)), luminance(linear(other)));
    (one.max(other) + 0.05) / (one.min(other) + 0.05)
}

/// Pairs of colours that are too near to each other for some eye.
fn confused(colours: &[&str]) -> Vec<String> {
    let mut confused = Vec::new();
    for (index, one) in colours.iter().enumerate() {
        for other in &colours[index + 1..] {
            for (sight, matrix) in &SIGHTS {
                let seen = |hex: &str| oklab(product(matrix, linear(hex)).map(|part| part.clamp(0.0, 1.0)));
                let difference =
                    seen(one).iter().zip(seen(other)).map(|(one, other)| (one - other).powi(2)).sum::<f64>();
                if difference.sqrt() < APART {
                    confused.push(format!("{one} and {other} with {sight}: {:.3}", difference.sqrt()));
                }
            }
        }
    }
    confused
}

/// Values of a variable: on light paper, then on dark.
fn values(name: &str) -> Vec<&'static str> {
    let declaration = format!("{name}: ");
    STYLE.match_indices(&declaration).map(|(at, _)| &STYLE[at + declaration.len()..][..7]).collect()
}

#[test]
fn runs_have_colours_that_everybody_can_tell_apart() {
    let papers = values("--paper");
    assert_eq!(papers.len(), 2);
    for (index, paper) in papers.iter().enumerate() {
        let runs: Vec<&str> = (0..8).map(|run| values(&format!("--run{run}"))[index]).collect();
        // The second half has dashed lines.
        for half in runs.chunks(4) {
            assert_eq!(confused(half), Vec::<String>::new(), "on {paper}");
        }
        for colour in runs {
            assert!(
                contrast(colour, paper) >= CONTRAST,
                "{colour} on {paper}: {:.1}",
                contrast(colour, paper)
            );
        }
        for text in ["--ink", "--quiet", "--alarm"] {
            let colour = values(text)[index];
            assert!(contrast(colour, paper) >= 4.5, "{text} on {paper}: {:.1}", contrast(colour, paper));
        }
    }
}

#[test]
fn confusing_colours_are_found() {
    assert_eq!(confused(&["#000000", "#ffffff"]).len(), 0);
    assert_eq!(confused(&["#d55e00", "#009e73", "#0072b2"]).len(), 0);
    assert!(confused(&["#c03030", "#707000"])[0].contains("with"), "red and green");
    assert!((contrast("#000000", "#ffffff") - 21.0).abs() < 0.01);
}

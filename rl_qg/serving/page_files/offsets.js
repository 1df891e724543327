// Places in a text: the server counts Unicode code points, JavaScript counts UTF-16 units (an emoji has two or more).

export class Offsets {
  constructor(text) {
    this.starts = /[\ud800-\udfff]/.test(text) ? startsOf(text) : null;
  }

  toUnits(points) {
    return this.starts ? this.starts[Math.min(points, this.starts.length - 1)] : points;
  }

  toPoints(units) {
    return this.starts ? this.starts.findIndex(start => start >= units) : units;
  }
}

// Of each code point its first unit, then the length of the text.
function startsOf(text) {
  const starts = [];
  let at = 0;
  for (const point of text) {
    starts.push(at);
    at += point.length;
  }
  return [...starts, at];
}

// The text cut at each end of a span: [{text, start, spans}], with the spans (of {start, end}) that cover the part.
export function partsOf(text, spans) {
  const cuts = [...new Set([0, text.length, ...spans.flatMap(span => [span.start, span.end])])].sort((a, b) => a - b);
  return cuts.slice(0, -1).map((start, at) => ({
    text: text.slice(start, cuts[at + 1]),
    start,
    spans: spans.filter(span => span.start <= start && cuts[at + 1] <= span.end),
  }));
}

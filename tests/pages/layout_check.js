// Returns a list of sentences: what is cut off on the page as it is shown now.
() => {
  const BOXES = "svg, .panel, .card, .flag, .missing, .chip, nav, header, td, th, ul, button";
  const SLACK = 1.5;  // pixels
  const problems = new Set();
  const tell = (element, what, node) => {
    const name = element.tagName.toLowerCase() + [...element.classList].map(one => "." + one).join("");
    problems.add(`${name} ${what}: ${node.data.trim().slice(0, 60)}`);
  };
  const page = document.documentElement;
  if (page.scrollWidth > window.innerWidth)
    problems.add(`the page is ${page.scrollWidth} wide and the window ${window.innerWidth}`);

  const scrolls = (style, element) =>
    (["auto", "scroll"].includes(style.overflowX) && element.scrollWidth > element.clientWidth + 1) ||
    (["auto", "scroll"].includes(style.overflowY) && element.scrollHeight > element.clientHeight + 1);
  const hides = value => value === "hidden" || value === "clip";

  const check = (node, left, right, top, bottom) => {
    for (let element = node.parentElement; element; element = element.parentElement) {
      const style = getComputedStyle(element), box = element.getBoundingClientRect();
      const beside = left < box.left - SLACK || right > box.right + SLACK;
      if (scrolls(style, element)) {
        if (element.tabIndex < 0 || !element.getAttribute("aria-label")) tell(element, "scrolls, without focus or name", node);
        return;
      }
      const above = top < box.top - SLACK || bottom > box.bottom + SLACK;
      if ((hides(style.overflowX) && beside) || (hides(style.overflowY) && above)) tell(element, "cuts text off", node);
      if (element.matches(BOXES) && beside) tell(element, "is too small for its text", node);
    }
    if (left < -SLACK || right > window.innerWidth + SLACK) tell(node.parentElement, "is outside the window", node);
  };

  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode, parent = node.parentElement;
    if (!node.data.trim() || ["SCRIPT", "STYLE"].includes(parent.tagName) || !parent.checkVisibility()) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    const shown = [...range.getClientRects()].filter(box => box.width > 0);
    if (!shown.length) continue;
    const ends = side => shown.map(box => box[side]);
    check(node, Math.min(...ends("left")), Math.max(...ends("right")), Math.min(...ends("top")), Math.max(...ends("bottom")));
  }
  return [...problems];
}

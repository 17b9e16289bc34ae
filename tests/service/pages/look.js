(() => {
  const root = document.documentElement, style = (e) => getComputedStyle(e);
  const all = [...document.body.querySelectorAll("*")].filter((e) => e.checkVisibility());
  const rgb = (text) => (text.match(/[\d.]+/g) ?? [0, 0, 0, 0]).map(Number);
  const over = (top, under) => { const a = top.length > 3 ? top[3] : 1; return under.slice(0, 3).map((v, i) => a * top[i] + (1 - a) * v); };
  const behind = (e) => (e === null || e === root ? rgb(style(document.body).backgroundColor) : over(rgb(style(e).backgroundColor), behind(e.parentElement)));
  const light = (c) => c.map((v) => v / 255).map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const faint = all.filter((e) => !e.closest("svg, option") && [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim())).map((e) => {
    const ground = behind(e), [a, b] = [light(over(rgb(style(e).color), ground)), light(ground)];
    const size = parseFloat(style(e).fontSize), large = size >= 24 || (size >= 18.66 && Number(style(e).fontWeight) >= 700);
    return [(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), large ? 3 : 4.5, `${e.tagName}.${e.className} ${e.textContent.slice(0, 20)}`];
  }).filter(([ratio, least]) => ratio < least).map(([ratio, , name]) => `${ratio.toFixed(2)} ${name}`);
  const unnamed = [...document.querySelectorAll("svg, input:not([type=hidden]), select, button")].filter((e) => e.checkVisibility()
    && !e.getAttribute("aria-label") && !e.closest("label") && !(e.tagName === "BUTTON" && e.textContent.trim())).map((e) => e.outerHTML.slice(0, 80));
  const wide = all.filter((e) => !e.closest(".scroll, .skip") && e.getBoundingClientRect().right > root.clientWidth + 1).map((e) => `${e.tagName}.${e.className} ${e.textContent.slice(0, 30)}`);
  return { faint, unnamed, wide, scroll: root.scrollWidth, client: root.clientWidth, owned: root.dataset.owned ?? "", paper: style(document.body).backgroundColor };
})()

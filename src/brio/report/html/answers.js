"use strict";
(() => {
  // ---- what an answer means at another prevalence: Bayes' rule on sensitivity and specificity
  const data = document.getElementById("answer-data");
  const slider = document.getElementById("prevalence");
  if (!data || !slider) return;
  const points = JSON.parse(data.textContent);
  const choice = document.getElementById("answer-point");
  const here = document.getElementById("prevalence-here");
  const out = (name) => document.querySelector(`#meaning [data-out="${name}"]`);
  const percent = (share) => (Number.isFinite(share) ? (100 * share).toFixed(1) : "–");
  const predictive = (sensitivity, specificity, share) => {
    const [tp, fn] = [sensitivity * share, (1 - sensitivity) * share];
    const [tn, fp] = [specificity * (1 - share), (1 - specificity) * (1 - share)];
    return { positive: tp / (tp + fp), negative: tn / (tn + fn) };
  };
  const ends = ({ mean, interval }) => [mean, ...(interval ?? [mean, mean])];
  const isUnknown = ({ interval }) => interval && interval[1] - interval[0] >= 1; // as in formatting.py
  function update() {
    const point = points[choice ? Number(choice.value) : 0];
    const [sensitivity, specificity] = [ends(point.sensitivity), ends(point.specificity)];
    const unknown = isUnknown(point.sensitivity) || isUnknown(point.specificity);
    const share = slider.value / 100;
    const [mean, low, high] = [0, 1, 2].map((k) => predictive(sensitivity[k], specificity[k], share));
    for (const name of ["positive", "negative"]) {
      out(name).textContent = `${percent(mean[name])}%`;
      const [from, to] = [low[name], high[name]].sort((a, b) => a - b).map(percent);
      out(`${name}-ends`).textContent = from === to ? "" : unknown ? "interval unknown: too few sites" : `(${from} to ${to})`;
    }
    const positives = Math.round(1000 * share);
    const truePositive = Math.round(positives * sensitivity[0]);
    const trueNegative = Math.round((1000 - positives) * specificity[0]);
    out("true_positive").textContent = truePositive;
    out("false_negative").textContent = positives - truePositive;
    out("true_negative").textContent = trueNegative;
    out("false_positive").textContent = 1000 - positives - trueNegative;
    document.getElementById("prevalence-value").textContent = `${Number(slider.value).toFixed(1)}%`;
  }
  slider.addEventListener("input", update);
  choice?.addEventListener("change", update);
  here?.addEventListener("click", () => { slider.value = here.dataset.share; update(); });
  update();
})();

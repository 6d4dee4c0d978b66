"""The cohort and what the audit found, in lines a reader can take in; nobody is named here."""

from __future__ import annotations

from typing import Any

from ...results import StoredJob
from .reading import Evidence
from .words import count, listed, number, percent, span, stated_p

__all__ = ["AuditLine", "cohort_section", "exclusions", "findings"]

AuditLine = tuple[str, str]
"""``"ok"``, ``"note"`` or ``"warn"``, and a sentence."""

ALPHA = 0.05


def cohort_section(evidence: Evidence) -> dict[str, Any] | None:
    """Sites with their counts and ranges; from the facts of the run, else what the audit counted, else None."""
    job = next((arm.job for arm in evidence.main if arm.job.cohort_facts), None)
    if job is not None and job.cohort_facts is not None:
        facts = job.cohort_facts
        rows = [_site(site) for site in facts["sites"]]
        return {
            "classes": facts["classes"],
            "rows": rows,
            "all": _site({"site": "all sites", **facts["all"]}),
            "most": max(row["total"] for row in rows),
            "n_rois": len(facts["rois"]["name"]),
            "shown": {key: any(row[key] for row in rows) for key in ("tr", "age", "sex", "motion")},
            "complete": True,
        }
    job = next((arm.job for arm in evidence.main if arm.job.audit), None)
    if job is None or job.audit is None:
        return None
    sites = [_site({"site": s["site"], "n": s["after"]}) for s in job.audit["sites"] if sum(s["after"])]
    return {
        "classes": job.audit["classes"],
        "rows": sites,
        "all": _site({"site": "all sites", "n": job.audit["classes_after"]}),
        "most": max(row["total"] for row in sites),
        "n_rois": None,
        "shown": dict.fromkeys(("tr", "age", "sex", "motion"), False),
        "complete": False,
    }


def _site(told: dict[str, Any]) -> dict[str, Any]:
    tr, age, motion, sex = (told.get(name) for name in ("tr", "age", "motion", "sex"))
    frames = told.get("frames")
    return {
        "site": told["site"],
        "n": told["n"],
        "total": sum(told["n"]),
        "frames": span(frames[0], frames[1]) if frames else "",
        "frames_value": frames[0] if frames else None,
        "tr": span(tr[0], tr[1], digits=2) if tr else "",
        "age": f"{age['mean']:.1f} ± {age['sd']:.1f}" if age else "",
        "age_value": age["mean"] if age else None,
        "motion": f"{motion['mean']:.2f} ± {motion['sd']:.2f}" if motion else "",
        "motion_value": motion["mean"] if motion else None,
        "sex": ", ".join(f"{n} {who}" for who, n in sex.items()) if sex else "",
    }


def findings(job: StoredJob) -> list[AuditLine]:
    """What the audit found, without naming anyone."""
    found = job.audit
    if job.require_plan().audit is None:
        return [("warn", "The cohort was used as it is: the audit's exclusions were not applied (--keep-all).")]
    if found is None:
        missing = "What else the audit found is not in this folder (it has no audit.json)."
        return [_excluded(job), ("note", missing)]
    out = [_excluded(job), _twice(found), *_dead(found), *_defects(found), _classes(found), _label(found)]
    return [line for line in [*out, *_length(found), *_clock(found)] if line is not None]


def _excluded(job: StoredJob) -> AuditLine:
    used, n = job.summary.n_scans, len(job.require_plan().excluded)
    if not n:
        return "ok", f"All {count(used, 'scan')} are used."
    return "note", f"{used:,} of {count(used + n, 'scan')} are used; {n:,} were left out, see below."


def _twice(found: dict[str, Any]) -> AuditLine:
    pairs = found["duplicates"]
    if not pairs:
        return "ok", "No scan is there twice."
    doubtful = sum(not pair["same_label"] for pair in pairs)
    extra = f", {doubtful} of them under different labels" if doubtful else ""
    return "note", f"{count(len(pairs), 'pair')} of participants have one and the same scan{extra}."


def _dead(found: dict[str, Any]) -> list[AuditLine]:
    out: list[AuditLine] = []
    for atlas, by_site in found["dead_by_site"].items():
        text = f"{count(sum(by_site.values()), 'scan has', 'scans have')} regions without signal in {atlas}"
        test = found["dead_patterns"].get(atlas)
        if test is None:
            out.append(("note", f"{text}."))
        elif test["p"] < ALPHA:
            hit, chance = percent(test["accuracy"]), percent(test["by_chance"])
            out.append(("warn", f"{text}; which ones are missing gives the site away ({hit} %, {chance} % by chance)."))
        else:
            out.append(("note", f"{text}; which ones are missing does not tell the site."))
    return out or [("ok", "Every region has signal in every scan.")]


def _defects(found: dict[str, Any]) -> list[AuditLine]:
    out: list[AuditLine] = []
    if found["non_finite"]:
        out.append(("note", f"{count(len(found['non_finite']), 'scan has', 'scans have')} frames with missing values."))
    if found["too_short"]:
        least = found["rules"]["min_frames"]
        text = count(len(found["too_short"]), "scan has", "scans have")
        out.append(("note", f"{text} fewer than {least} valid frames."))
    return out


def _classes(found: dict[str, Any]) -> AuditLine:
    if found["one_class"]:
        sites = listed(found["one_class"])
        return "warn", f"One class only at {sites}: tested without an AUC, never learned from."
    if found["small_class"]:
        return "note", f"Fewer than {found['rules']['min_class']} of a class at {listed(found['small_class'])}."
    return "ok", "Every site has both classes."


def _label(found: dict[str, Any]) -> AuditLine | None:
    label = found["label_by_site"] or {}
    if label.get("cramers_v") is None or label.get("p") is None:
        return None
    size = f"Cramér's V {number(label['cramers_v'])}, {number(label['by_chance'])} by chance, {stated_p(label['p'])}"
    if label["p"] < ALPHA:
        return "warn", f"The site tells something of the label ({size})."
    return "ok", f"The share of patients is about the same at all sites ({size})."


def _length(found: dict[str, Any]) -> list[AuditLine]:
    site, label = found["length_by_site"] or {}, found["length_by_label"] or {}
    out: list[AuditLine] = []
    if site.get("eta_squared") is not None:
        share = f"{100 * site['eta_squared']:.0f} %"
        frames = f"{site['shortest']} to {site['longest']} frames"
        out.append(("note", f"Scans have {frames}; {share} of the variance lies between sites."))
    if label.get("auc") is not None and label.get("p") is not None and site.get("eta_squared") is not None:
        size = f"AUC {percent(label['auc'])} over all sites, {stated_p(label['p'])}"
        if label["p"] < ALPHA:
            out.append(("warn", f"Scan length goes with the label ({size})."))
        else:
            out.append(("ok", f"Scan length does not go with the label ({size})."))
    return out


def _clock(found: dict[str, Any]) -> list[AuditLine]:
    tr = found["repetition_time"]
    if tr is None:
        return [("note", "The repetition time is not stated.")]
    values = sorted({float(v) for by in tr["by_site"].values() for v in by})
    if len(values) < 2:
        return []
    return [("note", f"Repetition times from {values[0]:g} to {values[-1]:g} s differ between sites.")]


def exclusions(evidence: Evidence) -> list[dict[str, str]]:
    """Who was left out, and why: the only place of a report that names participants."""
    seen: dict[str, str] = {}
    for arm in evidence.main:
        for who, reasons in arm.plan.excluded.items():
            seen.setdefault(str(who), "; ".join(map(str, reasons)))
    return [{"who": who, "why": why} for who, why in sorted(seen.items())]

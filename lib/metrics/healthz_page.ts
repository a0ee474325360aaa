/**
 * `/healthz` of the metrics port: whether the port itself answers, in the form of Kubernetes' health
 * checks. The proxy's own health is on another port.
 *
 * @module
 */
import { answerNotFound, answerText } from "./plain_answer.ts";

/** What is checked: that an answer can be given. It cannot fail where it is asked. */
const CHECKS: readonly string[] = ["ping"];

/** The name under which the checks are counted in `/metrics/slis`. */
export const HEALTHZ = "healthz";

/**
 * Answers `/healthz`, with `?verbose` check by check, with `?exclude=name` without one of them, and
 * `/healthz/name`. `onChecked` is told of each check of `/healthz`.
 */
export function answerHealthz(url: URL, onChecked: (check: string) => void): Response {
  const check = url.pathname.slice(`/${HEALTHZ}/`.length);
  if (check !== "") return CHECKS.includes(check) ? answerText("ok") : answerNotFound();
  const unknown = new Set(url.searchParams.getAll("exclude"));
  const lines = CHECKS.map((name) => {
    const state = unknown.delete(name) ? "excluded: ok" : "ok";
    if (state === "ok") onChecked(name);
    return `[+]${name} ${state}\n`;
  });
  if (!url.searchParams.has("verbose")) return answerText("ok");
  const warning = unknown.size > 0
    ? `warn: no health check has the name ${
      [...unknown].sort().map((name) => JSON.stringify(name)).join(", ")
    }\n`
    : "";
  return answerText(`${lines.join("")}${warning}${HEALTHZ} check passed\n`);
}

import type { ManifestFieldProblem, ManifestReport } from "../../api/kind.ts";
import type { TextPosition, YamlDocument } from "../../config/yaml_source.ts";
import { printableText } from "../../log/printable_text.ts";

/** One problem of a manifest: file, line, field, value, and the valid values. */
export interface ManifestProblem extends TextPosition {
  readonly file: string;
  /**
   * An error keeps the last valid version of the object (after syntax errors: of the file); a
   * warning changes nothing.
   */
  readonly severity: "error" | "warning";
  /** Kind and name, e.g. `Service default/web`; absent if the name cannot be read. */
  readonly object?: string;
  /** Path of the field, e.g. `spec.ports[0].port`; empty for the whole object or file. */
  readonly path: string;
  /** The value, shortened if long; empty if the problem concerns no value. */
  readonly value: string;
  /** The fault and the valid values; follows path and value. */
  readonly message: string;
}

/** A problem of an object, with its place where the object is one of a file. */
export type ObjectFinding =
  & Omit<ManifestProblem, keyof ObjectPlace | "column">
  & Partial<ObjectPlace & TextPosition>;

/** The file and line of an object. */
export type ObjectPlace = Pick<ManifestProblem, "file" | "line">;

/** A step into a value: a field's name or an index. */
export type FieldPath = readonly (string | number)[];

/** Maximum number of problems per file. */
const MOST_PROBLEMS = 100;
/** Maximum length of a value. */
const LONGEST_VALUE = 80;

/** The problems of one file. */
export class ManifestProblems {
  /** A hundred of them, errors before warnings. */
  readonly list: ManifestProblem[] = [];
  /** The numbers of further problems. */
  readonly notShown = { error: 0, warning: 0 };

  constructor(readonly file: string) {}

  /** Whether one of them is an error; the list has one then. */
  get hasError(): boolean {
    return this.list.some(({ severity }) => severity === "error");
  }

  /**
   * Adds a problem; an error takes the place of a warning if there are too many. Calls `locate` only if it
   * is kept, because it may parse the text again.
   */
  add(
    problem: Omit<ManifestProblem, "file" | "line" | "column">,
    locate: () => TextPosition,
  ): void {
    if (this.list.length >= MOST_PROBLEMS) {
      const last = problem.severity === "warning"
        ? -1
        : this.list.findLastIndex(({ severity }) => severity === "warning");
      this.notShown[last < 0 ? problem.severity : "warning"]++;
      if (last < 0) return;
      this.list.splice(last, 1);
    }
    const { line, column } = locate();
    const { severity, object, path, value, message } = problem;
    this.list.push({
      file: this.file,
      line,
      column,
      severity,
      ...(object !== undefined && { object: printableText(object) }),
      path: printableText(path),
      value: printableText(value),
      message: printableText(message),
    });
  }
}

/** Writes a path as in the documentation of Kubernetes: `spec.ports[0].port`, `metadata.labels['a/b']`. */
export function formatPath(path: FieldPath): string {
  return path.map((step, index) => {
    if (typeof step === "number") return `[${step}]`;
    if (!/^\w+$/.test(step)) return `['${step}']`;
    return index === 0 ? step : `.${step}`;
  }).join("");
}

/** Returns the steps of a path that {@linkcode formatPath} wrote. */
export function pathSteps(path: string): FieldPath {
  return [...path.matchAll(/\['([^']*)'\]|\[(\d+)\]|(\w+)/g)]
    .map(([, quoted, index, name]) => index === undefined ? quoted ?? name! : Number(index));
}

/** Writes a value in one line. */
function formatValue(value: unknown): string {
  if (value === undefined) return "";
  const text = JSON.stringify(value) ?? String(value);
  return text.length > LONGEST_VALUE ? `${text.slice(0, LONGEST_VALUE - 1)}…` : text;
}

/** Writes a problem in one line, beginning with `file:line:column` as compilers do. */
export function formatProblem(problem: ObjectFinding): string {
  return problemPlace(problem) + problemWords(problem);
}

/** Writes the place of a problem, e.g. `web.yaml:7:3: `; empty without one. */
export function problemPlace({ file, line = 1, column }: ObjectFinding): string {
  if (file === undefined) return "";
  return `${file}:${line}:${column === undefined ? "" : `${column}:`} `;
}

/** Writes a problem without its place. */
export function problemWords({ object, path, value, message }: ObjectFinding): string {
  const subject = object === undefined ? "" : `${object}: `;
  if (path === "") return subject + message;
  return `${subject}${path}${value === "" ? "" : ` is ${value}`}: ${message}`;
}

/** Collects the problems of one object. */
export class ObjectReport implements ManifestReport {
  /** Whether there was an error. */
  failed = false;

  /** `root` is the path of the object inside the document; not empty for items of a list. */
  constructor(
    private readonly document: YamlDocument,
    private readonly root: FieldPath,
    private readonly problems: ManifestProblems,
    private readonly object: string | undefined,
  ) {}

  /** Reports that the object cannot be used. */
  error(finding: ManifestFieldProblem): void {
    this.failed = true;
    this.#add("error", finding);
  }

  /** Reports a possible mistake; the object is used. */
  warn(finding: ManifestFieldProblem): void {
    this.#add("warning", finding);
  }

  #add(severity: "error" | "warning", { path, value, message }: ManifestFieldProblem): void {
    this.problems.add({
      severity,
      ...(this.object !== undefined && { object: this.object }),
      path: formatPath(path),
      value: formatValue(value),
      message,
    }, () => this.document.positionOf([...this.root, ...path]));
  }
}

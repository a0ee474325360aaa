import type { ManifestFieldProblem, ManifestReport } from "../../api/kind.ts";
import type { YamlDocument } from "../../config/yaml_source.ts";
import {
  type FieldPath,
  formatPath,
  formatValue,
  type ManifestProblems,
} from "./manifest_problem.ts";

/** The position of an object. */
interface ObjectPlace {
  readonly document: YamlDocument;
  /** Path of the object inside the document; not empty for items of a list. */
  readonly root: FieldPath;
  readonly problems: ManifestProblems;
}

/** Collects the problems of one object. */
export class ObjectReport implements ManifestReport {
  readonly #place: ObjectPlace;
  readonly #object: string | undefined;
  #failed = false;

  constructor(place: ObjectPlace, object: string | undefined) {
    this.#place = place;
    this.#object = object;
  }

  /** Whether there was an error. */
  get failed(): boolean {
    return this.#failed;
  }

  /** Reports that the object cannot be used. */
  error(finding: ManifestFieldProblem): void {
    this.#failed = true;
    this.#add("error", finding);
  }

  /** Reports a possible mistake; the object is used. */
  warn(finding: ManifestFieldProblem): void {
    this.#add("warning", finding);
  }

  #add(severity: "error" | "warning", { path, value, message }: ManifestFieldProblem): void {
    const { document, root, problems } = this.#place;
    problems.add({
      severity,
      ...(this.#object !== undefined && { object: this.#object }),
      path: formatPath(path),
      value: formatValue(value),
      message,
    }, () => document.positionOf([...root, ...path]));
  }
}

/** The part of `@std/yaml` that kube-relay uses, typed more strictly than the original. */
export interface StringifyOptions {
  /** Spaces of one level. */
  indent?: number;
  /** Longest line; -1 never folds. */
  lineWidth?: number;
  /** Leaves out what YAML cannot express instead of throwing. */
  skipInvalid?: boolean;
  /** Sorts the keys of each mapping. */
  sortKeys?: boolean;
  /** Whether equal objects are written as aliases. */
  useAnchors?: boolean;
}

export interface ParseOptions {
  /**
   * The set of plain scalars that are more than strings; `core` leaves timestamps and merge keys
   * alone.
   */
  schema?: "core" | "default" | "failsafe" | "json";
  /** Called with each warning; an exception ends the parsing. */
  onWarning?: (error: Error) => void;
}

/** Parses one YAML document. Throws a SyntaxError. */
export declare function parse(content: string, options?: ParseOptions): unknown;

/** Writes a value as one YAML document. Throws a TypeError for what YAML cannot express. */
export declare function stringify(data: unknown, options?: StringifyOptions): string;

import { type Cidr, tryParseCidr } from "../net/cidr.ts";

/** One invalid value. */
export interface ValidationProblem {
  /** Field of the configuration, e.g. `iptables.minSyncPeriod`; list items by number. */
  readonly path: string;
  /** The value and the valid values. */
  readonly message: string;
}

/** Records a problem unless `right` holds. */
export type Expect = (right: boolean, path: string, message: string) => void;

/** Creates an {@linkcode Expect} that adds to a list. */
export function collectProblems(problems: ValidationProblem[]): Expect {
  return (right, path, message) => {
    if (!right) problems.push({ path, message });
  };
}

/** Expects a CIDR and returns it. */
export function checkCidr(expect: Expect, path: string, text: string): Cidr | undefined {
  const cidr = tryParseCidr(text);
  expect(
    cidr !== undefined,
    path,
    `Expected a CIDR such as 10.244.0.0/16 or fd00::/48, found '${text}'`,
  );
  return cidr;
}

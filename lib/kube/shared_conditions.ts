/**
 * The conditions of an endpoint, one object for each combination: of 150,000 endpoints nearly all say the same.
 *
 * @module
 */
import type { SliceEndpoint } from "../api/objects.ts";

type Conditions = NonNullable<SliceEndpoint["conditions"]>;

const VALUES = [undefined, false, true] as const;

const COMBINATIONS: readonly Conditions[] = VALUES.flatMap((ready) =>
  VALUES.flatMap((serving) =>
    VALUES.map((terminating) =>
      Object.freeze({
        ...(ready !== undefined && { ready }),
        ...(serving !== undefined && { serving }),
        ...(terminating !== undefined && { terminating }),
      })
    )
  )
);

/** The one frozen object that says this. */
export function sharedConditions(
  { ready, serving, terminating }: { [K in keyof Conditions]: boolean | undefined },
): Conditions {
  return COMBINATIONS[(indexOf(ready) * 3 + indexOf(serving)) * 3 + indexOf(terminating)]!;
}

function indexOf(value: boolean | undefined): number {
  return value === undefined ? 0 : value ? 2 : 1;
}

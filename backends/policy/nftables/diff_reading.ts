/**
 * Computes one transaction that changes a table that was read to that of a plan. Pure.
 *
 * @module
 */
import type { PolicyPlan } from "../../../lib/policy/policy_plan.ts";
import { atOnce } from "../../netfilter/in_steps.ts";
import { type ElementChange, NftTransaction } from "../../netfilter/nft/nft_transaction.ts";
import { isDeclaredAs, normalHook, readChainPrint } from "../../netfilter/nft/printed_form.ts";
import { EMPTY_TABLE, type TableReading } from "../../netfilter/nft/table_listing.ts";
import type { RefusedParts } from "../policy_quarantine.ts";
import type { TableDifference } from "./applied_policies.ts";
import { policyTable } from "./layout.ts";
import { type Part, type WantedElement, type WantedTable, wantedTable } from "./wanted_table.ts";

/** Elements between two pauses. */
const ELEMENTS_PER_STEP = 2_000;

/**
 * Returns the difference between a reading of the table and the plan; `undefined` = the table does
 * not exist.
 */
export function* diffReading(
  plan: PolicyPlan,
  { reading, isDamaged, refused }: {
    readonly reading: TableReading | undefined;
    /** Whether the table has to be replaced as a whole. */
    readonly isDamaged: boolean;
    readonly refused: RefusedParts;
  },
): Generator<void, TableDifference> {
  const wanted = yield* wantedTable(plan, refused);
  const replacesTable = reading !== undefined && (isDamaged || isAltered(wanted, reading));
  const present = replacesTable || reading === undefined ? EMPTY_TABLE : reading;
  const idle = [...present.rules.keys()].filter((name) => !wanted.chains.has(name));
  const recreated = [...wanted.chains.values()].filter(({ name, hook }) => {
    const print = present.rules.get(name);
    return print !== undefined && readChainPrint(print).hook !== (hook && normalHook(hook));
  });
  const removedContainers = [...present.declarations].flatMap(([name, print]) =>
    wanted.containers.has(name)
      ? []
      : [{ name, kind: print.startsWith("map\n") ? "map" as const : "set" as const }]
  );
  const transaction = yield* NftTransaction.steps<Part, string>(
    { ...policyTable(plan.family), containers: wanted.containers },
    {
      replacesTable,
      declared: wanted.containers.keys(),
      recreated: recreated.map(({ name }) => name),
      chains: [...wanted.chains.values(), ...idle.map((name) => ({ name, rules: [] }))],
      ...yield* elementChanges(wanted, present),
      removedContainers,
    },
  );
  const { lists, peers } = wanted;
  return {
    transaction,
    applied: {
      isWhole: true,
      pods: [...plan.pods],
      lists: [...lists],
      peers: [...peers].map((id) => [id, true]),
      chains: [...wanted.chains.keys()],
      idle,
    },
  };
}

/** Sets and maps of other types, which cannot be changed. */
function isAltered({ containers }: WantedTable, { declarations }: TableReading): boolean {
  return containers.entries().some(([name, container]) => {
    const print = declarations.get(name);
    return print !== undefined && !isDeclaredAs(container, print);
  });
}

type Changes = Map<string, ElementChange<Part, string>[]>;

function* elementChanges(wanted: WantedTable, { elements }: TableReading) {
  const [removed, added]: [Changes, Changes] = [new Map(), new Map()];
  const emptied: string[] = [];
  let compared = 0;
  for (const [container, { declaration }] of wanted.containers) {
    const wantedKeys = wanted.elements.get(container) ?? new Map<string, WantedElement>();
    const present = elements.get(container) ?? new Map<string, string>();
    const gone = [...present].filter(([key, value]) =>
      wantedKeys.get(key) === undefined || (wantedKeys.get(key)?.value ?? "") !== value
    ).map(([key]) => ({ element: { container, key } }));
    // Intervals that take the place of others must not meet them, not even in one transaction.
    const isEmptied = gone.length > 0 && declaration.includes("interval");
    if (isEmptied) emptied.push(container);
    else if (gone.length > 0) removed.set(container, gone);
    const fresh = [...wantedKeys].filter(([key, { value = "" }]) =>
      isEmptied || present.get(key) !== value
    );
    if (fresh.length > 0) {
      added.set(
        container,
        fresh.map(([key, each]) => change(container, key, each)),
      );
    }
    compared += 1 + wantedKeys.size;
    if (compared > ELEMENTS_PER_STEP) yield void (compared = 0);
  }
  return { removed, added, emptied };
}

function change(
  container: string,
  key: string,
  { value, owner }: WantedElement,
): ElementChange<Part, string> {
  return { element: { container, key, ...(value !== undefined && { value }) }, owner };
}

/** Returns the whole table of a plan, as input for `nft -f`. */
export function renderPolicies(plan: PolicyPlan): Iterable<string> {
  const options = { reading: undefined, isDamaged: false, refused: new Set<string>() };
  return atOnce(diffReading(plan, options)).transaction.text();
}

import { assert, assertEquals } from "@std/assert";
import { testServicePlan } from "../../tests/support/builders/service_plans.ts";
import { CONTAINER_NAMES, type Element } from "./containers.ts";
import { type TableChanges, Transaction } from "./transaction.ts";

const { key: OWNER } = testServicePlan();
const NOTHING: TableChanges = {
  replacesTable: false,
  declares: false,
  chains: [],
  removed: new Map(),
  added: new Map(),
  removedChains: [],
  applied: { chains: [], entries: [] },
};

/** The transaction of these changes, and how many pauses it takes. */
function made(changes: Partial<TableChanges>, family: "IPv4" | "IPv6" = "IPv4") {
  const steps = Transaction.steps(family, { ...NOTHING, ...changes });
  for (let pauses = 0;; pauses++) {
    const { done, value } = steps.next();
    if (done) return { transaction: value, pauses };
  }
}

function owned(...elements: readonly Element[]) {
  return elements.map((element) => ({ element, owner: OWNER }));
}

Deno.test("Transaction writes each kind in the order in which the kernel takes it", () => {
  const { transaction } = made({
    chains: [{ name: "services", rules: ["goto last"] }, {
      name: "last",
      hook: "type nat hook output priority -100",
      rules: ["drop"],
    }],
    removed: new Map([["cluster-ips", owned({ container: "cluster-ips", key: "172.30.0.1" })]]),
    added: new Map([[
      "numbered-chains",
      owned(
        { container: "numbered-chains", key: "0x80000001", value: "goto last" },
        { container: "numbered-chains", key: "0x80000002", value: "drop" },
      ),
    ]]),
    removedChains: ["old", "older"],
  });
  assertEquals(transaction.lines, [
    "add chain ip kube-relay services",
    "flush chain ip kube-relay services",
    "add chain ip kube-relay last { type nat hook output priority -100 ; policy accept ; }",
    "flush chain ip kube-relay last",
    "delete element ip kube-relay cluster-ips {",
    "  172.30.0.1",
    "}",
    "add rule ip kube-relay services goto last",
    "add rule ip kube-relay last drop",
    "add element ip kube-relay numbered-chains {",
    "  0x80000001 : goto last,",
    "  0x80000002 : drop",
    "}",
    "flush chain ip kube-relay old",
    "flush chain ip kube-relay older",
    "delete chain ip kube-relay old",
    "delete chain ip kube-relay older",
  ]);
  assertEquals([transaction.elements, transaction.isEmpty], [3, false]);
});

Deno.test("Transaction deletes by the key alone, and knows whose line is whose", () => {
  const element: Element = { container: "numbered-chains", key: "0x80000001", value: "drop" };
  const { transaction } = made({
    removed: new Map([["numbered-chains", owned(element)]]),
    added: new Map([["numbered-chains", [{ element, owner: undefined }]]]),
  });
  assertEquals(transaction.lines.filter((line) => line.startsWith("  ")), [
    "  0x80000001",
    "  0x80000001 : drop",
  ]);
  const owners = transaction.lines.map((_, index) => transaction.ownerOf(index + 1));
  assertEquals(owners, [undefined, OWNER, undefined, undefined, undefined, undefined]);
});

Deno.test("Transaction replaces a table, and declares every set and map of its family", () => {
  const { lines } = made({ replacesTable: true, declares: true }, "IPv6").transaction;
  assertEquals(
    lines.slice(0, 3),
    ["add", "delete", "add"].map((verb) => `${verb} table ip6 kube-relay`),
  );
  const declared = lines.slice(3).map((line) =>
    /^add (?:map|set) ip6 kube-relay (\S+)/.exec(line)?.[1]
  );
  assertEquals(declared, [...CONTAINER_NAMES]);
});

Deno.test("Transaction is empty where nothing changes", () => {
  const { transaction } = made({});
  assertEquals([transaction.isEmpty, [...transaction.text()]], [true, []]);
});

Deno.test("Transaction of many elements is made with pauses, and given in pieces", () => {
  const elements = Array.from({ length: 10_000 }, (_, index): Element => ({
    container: "cluster-ips",
    key: `172.30.${index >> 8}.${index & 255}`,
  }));
  const { transaction, pauses } = made({ added: new Map([["cluster-ips", owned(...elements)]]) });
  assertEquals(pauses, 5);
  const pieces = [...transaction.text()];
  assertEquals(pieces.join(""), transaction.lines.map((line) => `${line}\n`).join(""));
  assert(pieces.length > 1 && pieces.every((piece) => piece.length < 70_000));
});

import { assertEquals } from "@std/assert";
import { findMissingElements } from "./find_missing.ts";

const CARRIERS = [
  { object: "rule", name: "services", text: "services x" },
  { object: "map element", name: "service-ips", text: "10.96.0.1 . tcp . 80 : 0x1" },
  { object: "map element", name: "endpoints", text: "10.96.0.1 . tcp . 80 . 0x2 : 10.0.0.1 . 80" },
  { object: "rule", name: "to-2", text: "to-2 x" },
];

for (
  const [name, chains, hasFront, expected] of [
    ["everything", ["services", "to-2"], true, []],
    ["no element", ["services", "to-2"], false, ["map element service-ips"]],
    ["no chain that chooses", ["services"], true, ["chain to-2"]],
    ["no table", [], false, ["chain services", "chain to-2", "map element service-ips"]],
  ] as const
) {
  Deno.test(`findMissingElements() where there is ${name}`, async () => {
    const asked: string[] = [];
    const found = await findMissingElements({
      chains: () => Promise.resolve(new Map(chains.map((chain) => [chain, ""]))),
      hasElement(container, key) {
        asked.push(`${container} { ${key} }`);
        return Promise.resolve(hasFront);
      },
    }, CARRIERS);
    assertEquals(asked, ["service-ips { 10.96.0.1 . tcp . 80 }"]);
    assertEquals(found.map(({ object, name }) => `${object} ${name}`), [...expected]);
  });
}

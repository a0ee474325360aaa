import { assert, assertEquals, assertThrows } from "@std/assert";
import fc from "fast-check";
import { randomIpvsOperation } from "../builders/random_ipvs.ts";
import { renderOperations } from "../texts/ipvs_operation.ts";
import { IpvsTable } from "./ipvs_table.ts";
import { parseOperations, tryParseOperation } from "../texts/parse_operations.ts";

function tableOf(...lines: readonly string[]): IpvsTable {
  const table = new IpvsTable();
  for (const line of lines) applyLine(table, line);
  return table;
}

function applyLine(table: IpvsTable, line: string): void {
  const operation = tryParseOperation(line);
  assert(operation !== undefined, line);
  table.apply(operation);
}

function linesOf(table: IpvsTable): string[] {
  return [...renderOperations(table.operations())];
}

const SERVER = "-A -t 1.2.3.4:80 -s rr";
const REAL = "-a -t 1.2.3.4:80 -r 5.6.7.8:80 -m -w 1";

Deno.test("IpvsTable adds, changes, gets and deletes servers and real servers", () => {
  const table = tableOf(SERVER, REAL, "-E -t 1.2.3.4:80 -s lc -p 60");
  applyLine(table, "-e -t 1.2.3.4:80 -r 5.6.7.8:80 -m -w 0");
  const [server] = table.getServers();
  assert(server !== undefined);
  assertEquals(table.getServer(server.key), server);
  assertEquals(server.persistenceSeconds, 60);
  assertEquals(table.getReals(server.key).map(({ weight }) => weight), [0]);
  applyLine(table, "-d -t 1.2.3.4:80 -r 5.6.7.8:80");
  assertEquals(table.getReals(server.key), []);
  applyLine(table, "-D -t 1.2.3.4:80");
  assertEquals(table.getServer(server.key), undefined);
});

/** The existing lines, the new line, and the expected message. */
const REFUSED: readonly (readonly [there: readonly string[], line: string, says: string])[] = [
  [[SERVER], SERVER, "Service already exists"],
  [[], "-E -t 1.2.3.4:80 -s rr", "No such service"],
  [[], "-D -t 1.2.3.4:80", "No such service"],
  [[], REAL, "No such service"],
  [[SERVER, REAL], REAL, "Destination already exists"],
  [[SERVER], "-e -t 1.2.3.4:80 -r 5.6.7.8:80 -m -w 0", "No such destination"],
  [[SERVER], "-d -t 1.2.3.4:80 -r 5.6.7.8:80", "No such destination"],
];

for (const [there, line, says] of REFUSED) {
  Deno.test(`IpvsTable refuses '${line}' after [${there}]: ${says}`, () => {
    const table = tableOf(...there);
    const before = linesOf(table);
    assertThrows(() => applyLine(table, line), Error, says);
    assertEquals(linesOf(table), before);
  });
}

Deno.test("IpvsTable.operations() are the way to the same table", () => {
  fc.assert(fc.property(fc.array(randomIpvsOperation, { maxLength: 60 }), (operations) => {
    const table = new IpvsTable();
    for (const operation of operations) {
      try {
        table.apply(operation);
      } catch {
        // A refused operation changes nothing.
      }
    }
    const text = [...renderOperations(table.operations())].map((line) => `${line}\n`).join("");
    const again = new IpvsTable();
    for (const operation of parseOperations(text).operations) again.apply(operation);
    assertEquals(linesOf(again), linesOf(table));
  }));
});

import { assertEquals } from "@std/assert";
import { operationsText } from "./operations_text.ts";

Deno.test("operationsText() counts one of a thing as one", () => {
  const cases = [
    [{ reads: 1, transactions: 1, lines: 12 }, "1 read, 1 transaction, 12 lines"],
    [{ addresses: 1, entries: 1 }, "1 address, 1 entry"],
    [{ addresses: 2, "virtual servers": 1 }, "2 addresses, 1 virtual server"],
    [{}, "nothing to do"],
  ] as const;
  for (const [operations, text] of cases) assertEquals(operationsText(operations), text);
});

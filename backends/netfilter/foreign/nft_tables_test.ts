import { assertEquals } from "@std/assert";
import { parseNftTables } from "./nft_tables.ts";

Deno.test("parseNftTables() takes the headings of tables, with and without content", () => {
  const text = `table ip nat {
}
table ip6 kube-proxy {
\tflowtable table {
\t\thook ingress priority filter
\t}
}
table inet firewalld
`;
  assertEquals(parseNftTables(text), [
    { family: "ip", name: "nat" },
    { family: "ip6", name: "kube-proxy" },
    { family: "inet", name: "firewalld" },
  ]);
});

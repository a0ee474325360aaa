/** Links between pages and to files lead somewhere. */
import { assertEquals } from "@std/assert";
import { followLinks, linksOf } from "./support/docs/links.ts";

Deno.test("every link of every page leads to a file", async () => {
  const { count, broken } = await followLinks(new URL("../", import.meta.url));
  assertEquals(broken, []);
  assertEquals(count > 50, true, `only ${count} links were found`);
});

Deno.test("linksOf() finds links, and skips code and other hosts", () => {
  const page = "[a](b.md) `[c](d)` [e](https://f.example) [`g`](h/i.ts#j)\n```\n[k](l)\n```\n";
  assertEquals(linksOf(page), ["b.md", "h/i.ts#j"]);
});

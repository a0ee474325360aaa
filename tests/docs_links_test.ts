/** Links between pages and to files lead somewhere. */
import { assertEquals } from "@std/assert";

const ROOT = new URL("../", import.meta.url);

/** Folders without pages of this repository. */
const PASSED_OVER = ["dist", "node_modules", ".git"];

async function pagesBelow(folder: URL): Promise<URL[]> {
  const pages: URL[] = [];
  for await (const { name, isDirectory } of Deno.readDir(folder)) {
    if (PASSED_OVER.includes(name)) continue;
    if (isDirectory) pages.push(...await pagesBelow(new URL(`${name}/`, folder)));
    else if (name.endsWith(".md")) pages.push(new URL(name, folder));
  }
  return pages;
}

/** Relative links of a page: code, and addresses elsewhere, are left out. */
function linksOf(page: string): readonly string[] {
  const prose = page.replaceAll(/^\s*```[\s\S]*?^\s*```/gm, "").replaceAll(/`[^`]*`/g, "");
  return [...prose.matchAll(/\]\(([^)\s]+)\)/g)].map(([, link]) => link!)
    .filter((link) => !/^(https?:|#)/.test(link));
}

Deno.test("every link of every page leads to a file", async () => {
  const broken: string[] = [];
  let count = 0;
  for (const page of await pagesBelow(ROOT)) {
    for (const link of linksOf(await Deno.readTextFile(page))) {
      count++;
      const target = new URL(link.split("#")[0]!, page);
      if (!await Deno.stat(target).then(() => true, () => false)) {
        broken.push(`${page.pathname.slice(ROOT.pathname.length)}: ${link}`);
      }
    }
  }
  assertEquals(broken, []);
  assertEquals(count > 50, true, `only ${count} links were found`);
});

Deno.test("linksOf() finds links, and skips code and other hosts", () => {
  const page = "[a](b.md) `[c](d)` [e](https://f.example) [`g`](h/i.ts#j)\n```\n[k](l)\n```\n";
  assertEquals(linksOf(page), ["b.md", "h/i.ts#j"]);
});

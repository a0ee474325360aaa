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
export function linksOf(page: string): readonly string[] {
  const prose = page.replaceAll(/^\s*```[\s\S]*?^\s*```/gm, "").replaceAll(/`[^`]*`/g, "");
  return [...prose.matchAll(/\]\(([^)\s]+)\)/g)].map(([, link]) => link!)
    .filter((link) => !/^(https?:|#)/.test(link));
}

/** The number of relative links in the pages of a folder, and those that lead to no file. */
export async function followLinks(folder: URL): Promise<{ count: number; broken: string[] }> {
  const broken: string[] = [];
  let count = 0;
  for (const page of await pagesBelow(folder)) {
    for (const link of linksOf(await Deno.readTextFile(page))) {
      count++;
      const target = new URL(link.split("#")[0]!, page);
      if (!await Deno.stat(target).then(() => true, () => false)) {
        broken.push(`${page.pathname.slice(folder.pathname.length)}: ${link}`);
      }
    }
  }
  return { count, broken };
}

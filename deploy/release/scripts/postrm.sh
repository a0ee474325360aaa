
case $1 in
remove) after_removal ;;
purge)
    clean_up
    remove_files
    remove_links
    after_removal
    ;;
esac
